"""The guard of the audit log: the databases themselves refuse to change or delete entries."""

from trainops.append_only import AppendOnly

GUARD = AppendOnly("access_auditentry", "audit_entry", "the audit log is append-only")
