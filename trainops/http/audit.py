"""The audit log: who did what to accounts, tokens and stored work, when, and from where.

Entries are written in the transaction of what they are about, and stay.
"""

from trainops.http.models import AuditEntry

MAX_CHARACTERS = 200  # of a value; an append-only row keeps what it is given


def record(event: str, *, actor: str, address: str, **details: object) -> None:
    """Append an entry. `actor`: the name of the user who did it; empty: the platform."""
    AuditEntry.objects.create(
        event=event,
        actor=actor,
        address=address[:45],
        details={name: f"{value!s:.{MAX_CHARACTERS}}" for name, value in details.items()},
    )
