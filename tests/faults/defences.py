"""Each defence against hostile clients and files, and the test that notices when it is taken out.

The findings that they answer are those of the security review: docs/security.md has the limits.
"""

from tests.faults.protections import Protection

GATEWAY = "tests/gateway/test_gateway.py"
CHARACTERS = "tests/http/test_characters.py"
THROTTLE = "tests/http/test_login_throttle.py"
IDENTITY = "tests/workers/test_identity.py"
FACTOR = "tests/http/test_second_factor.py"
OIDC = "tests/identity/test_oidc.py"
BACK_CHANNEL = "tests/identity/test_back_channel.py"

DEFENCES = [
    Protection(
        "a body that arrives too slowly ends its request",
        "trainops.gateway.bodies:BodyChunks._seconds_left",
        "max(0.0, min(PAUSE_SECONDS, self._began_at + granted - self._clock()))",
        "3600.0",
        f"{GATEWAY}::test_a_body_that_trickles_ends_the_request",
    ),
    Protection(
        "a large body of an unknown client is refused unread",
        "trainops.gateway.gateway:Gateway._allowed_bytes",
        "raise bodies.NotSignedIn(rules.anonymous_bytes)",
        "return allowed",
        f"{GATEWAY}::test_what_is_announced_too_large_is_refused_unread",
    ),
    Protection(
        "the requests in progress of one person are limited",
        "trainops.gateway.clients:ClientRequests.counted",
        "if self._counts[what] >= getattr(self._limits, what):",
        "if False:",
        f"{GATEWAY}::test_one_person_has_n_requests_in_progress_from_all_addresses",
    ),
    Protection(
        "one person has one file processed at a time",
        "trainops.concurrency_limit:ConcurrencyLimit._is_free",
        "(not person or person not in self._people)",
        "True",
        "tests/test_concurrency_limit.py::test_a_person_has_one_and_the_last_one_has_none",
    ),
    Protection(
        "a body with too many values is refused before they are made",
        "trainops.http.parsers:_has_more_items",
        "next(islice(found, max_items, None), None) is not None",
        "False",
        "tests/http/test_problems.py::test_many_values_are_refused_before_they_are_made",
    ),
    Protection(
        "YAML with too many values is not composed",
        "trainops.plain_yaml:_Loader.compose_node",
        "if self.num_nodes > MAX_NODES:",
        "if False:",
        "tests/pages/test_new_file.py::test_a_large_file_is_refused_before_it_is_read",
    ),
    Protection(
        "a page reads no long YAML",
        "apps.dashboard.config_file:ConfigFile.body",
        "if len(self.text) > MAX_CHARS:",
        "if False:",
        "tests/pages/test_new_file.py::test_a_large_file_is_refused_before_it_is_read",
    ),
    Protection(
        "an archive has its end record in one place",
        "trainops.files.layout:_read_end_64",
        "at != locator_at - END_64.size or disk or num_disks > 1",
        "False",
        "tests/formats/test_danger.py::test_an_archive_with_two_directories_is_refused",
    ),
    Protection(
        "a confined process gets no secret of the environment",
        "trainops.confined.calling:call",
        "{name: os.environ[name] for name in (*KEPT, *kept) if name in os.environ}",
        "dict(os.environ)",
        "tests/confined/test_confined.py"
        "::test_it_knows_nothing_of_the_environment_but_where_code_is",
    ),
    Protection(
        "a token that only reads changes nothing",
        "trainops.http.authentication:TokenAuthentication.authenticate",
        "if auth.scope == TokenScope.READ and request.method not in SAFE_METHODS:",
        "if False:",
        "tests/api/test_read_tokens.py::test_an_operation_stays_as_it_is",
    ),
    Protection(
        "a worker token acts for its worker only",
        "apps.workers.registry:require_speaker",
        "token is None or token.worker_id == worker_id",
        "True",
        f"{IDENTITY}::test_a_token_that_has_not_registered_acts_for_no_worker",
    ),
    Protection(
        "nothing over HTTP acts for a worker of the installation",
        "apps.workers.registry:require_speaker",
        "require_remote(worker_id)",
        "pass",
        f"{IDENTITY}::test_http_acts_for_no_worker_of_this_installation",
    ),
    Protection(
        "a form with a NUL character is refused",
        "trainops.http.middleware:FormMiddleware.process_view",
        'request.method == "POST" and not is_api(request)',
        "False",
        f"{CHARACTERS}::test_in_forms",
    ),
    Protection(
        "a cursor beyond the calendar is refused",
        "trainops.http.pagination:_value_of",
        "(DjangoValidationError, ValueError, TypeError, OverflowError)",
        "(DjangoValidationError, ValueError, TypeError)",
        f"{CHARACTERS}::test_times_beyond_the_calendar_in_cursors",
    ),
    Protection(
        "a number of thousands of digits is refused",
        "trainops.http.numbers:whole_number",
        "len(text) <= MAX_DIGITS",
        "len(text[:9]) <= MAX_DIGITS",
        f"{CHARACTERS}::test_numbers_that_only_begin_as_small_ones",
    ),
    Protection(
        "a question links to no other site",
        "apps.dashboard.views.actions:confirm",
        'safe(request, request.GET.get("next", "/"))',
        'request.GET.get("next", "/")',
        "tests/pages/test_actions.py::TestAsking::test_no_link_of_a_question_leads_to_another_site",
    ),
    Protection(
        "no text is a formula in a CSV",
        "trainops.text:csv_cell",
        "text.startswith(FORMULAS) and not NUMBER.fullmatch(text)",
        "False",
        "tests/api/test_records.py::test_no_metric_is_a_formula_in_the_csv",
    ),
    Protection(
        "no caller forges a line of a log",
        "trainops.text:LineFormatter.formatMessage",
        "escaped(super().formatMessage(record))",
        "super().formatMessage(record)",
        "tests/http/test_access_log.py::test_no_log_has_a_control_character_of_a_caller",
    ),
    Protection(
        "wrong passwords are counted",
        "trainops.http.recent_counts:count",
        'row.update(number=F("number") + 1)',
        "pass",
        f"{THROTTLE}::test_after_several_wrong_passwords_the_right_one_must_wait",
    ),
    Protection(
        "passwords in bodies are limited",
        "trainops.http.rate_limits:PasswordThrottle.allow_request",
        "return counted.number <= self.max_requests",
        "return True",
        f"{THROTTLE}::test_passwords_in_bodies_are_limited_by_address",
    ),
    Protection(
        "behind a proxy the address of its client counts",
        "trainops.http.addresses:client_address",
        "if not settings.BEHIND_HTTPS_PROXY:",
        "if True:",
        f"{THROTTLE}::test_behind_a_proxy_wrong_passwords_count_for_the_address_of_the_client",
    ),
    Protection(
        "other users of the machine read no data directory that was open",
        "trainops.launch.checks:close_to_others",
        "path.chmod(stat.S_IMODE(mode) & ~mask)",
        "pass",
        "tests/launch/test_permissions.py"
        "::test_a_directory_that_was_open_is_closed_with_what_is_in_it",
    ),
    Protection(
        "pages of signed-in people are not kept",
        "trainops.http.middleware:ApiEnvelopeMiddleware.__call__",
        'response.setdefault("Cache-Control", "no-store")',
        "pass",
        "tests/http/test_response_headers.py::test_what_a_signed_in_person_sees_is_not_kept",
    ),
    Protection(
        "a password alone is refused where there is a second factor",
        "trainops.http.login_throttle:LoginThrottle.authenticate",
        "second_factor.require_code(user, code, request)",
        "pass",
        f"{FACTOR}::test_no_way_to_a_token_by_password_omits_the_code",
    ),
    Protection(
        "the page asks for the code",
        "trainops.http.sign_in:next_step",
        "return CODE",
        'return ""',
        f"{FACTOR}::test_the_page_asks_for_a_code_after_the_password",
    ),
    Protection(
        "a code of the app is accepted once",
        "trainops.http.second_factor:_use_app_code",
        "return row.update(last_period=period) == 1",
        "return row is not None",
        f"{FACTOR}::test_a_code_is_accepted_once",
    ),
    Protection(
        "a recovery code is accepted once",
        "trainops.http.second_factor:_use_recovery_code",
        ".delete()[0] == 1",
        ".exists()",
        f"{FACTOR}::test_a_recovery_code_is_accepted_once_and_only_a_digest_is_stored",
    ),
    Protection(
        "wrong codes of an app are limited from everywhere",
        "trainops.http.second_factor:accept",
        "_count(anywhere, MAX_WRONG_OF_ACCOUNT, FORGET_ACCOUNT_SECONDS, user)",
        "pass",
        f"{FACTOR}::test_wrong_codes_of_the_app_are_limited_for_an_account_from_everywhere",
    ),
    Protection(
        "a new password ends a sign-in that awaits a code",
        "trainops.http.sign_in:pending",
        'not constant_time_compare(found["password"], user.get_session_auth_hash())',
        "False",
        f"{FACTOR}::test_an_awaited_code_is_no_longer_accepted",
    ),
    Protection(
        "a wrong state ends a sign-in by a provider",
        "trainops.http.oidc.flow:finish",
        'if not constant_time_compare(given.get("state", ""), begun["state"]):',
        "if False:",
        f"{OIDC}::test_a_wrong_state_is_refused",
    ),
    Protection(
        "the nonce of an ID token is compared",
        "trainops.http.oidc.id_tokens:verified",
        'nonce={"essential": True, "value": nonce},',
        'nonce={"essential": True},',
        f"{OIDC}::test_an_id_token_that_is_not_for_this_sign_in_is_refused",
    ),
    Protection(
        "the audience of an ID token is compared",
        "trainops.http.oidc.id_tokens:verified",
        'aud={"essential": True, "value": oidc.client_id},',
        'aud={"essential": True},',
        f"{OIDC}::test_an_id_token_that_is_not_for_this_sign_in_is_refused",
    ),
    Protection(
        "only keys that the provider publishes sign ID tokens",
        "trainops.http.oidc.id_tokens:_decoded",
        "jwt.decode(token, usable_keys(published_keys), registry=_Headers()).claims",
        '__import__("json").loads(__import__("base64").urlsafe_b64decode('
        'token.split(".")[1] + "=="))',
        f"{OIDC}::test_an_id_token_that_is_not_for_this_sign_in_is_refused",
    ),
    Protection(
        "an ID token is no logout token",
        "trainops.http.oidc.id_tokens:verified_logout",
        'elif "nonce" in claims:',
        "elif False:",
        f"{BACK_CHANNEL}::test_a_token_that_is_not_of_a_sign_out_ends_nothing",
    ),
    Protection(
        "a logout token ends no later session",
        "trainops.http.oidc.logout:_is_named",
        'begun["iat"] > claims["iat"]',
        "False",
        f"{BACK_CHANNEL}::test_a_token_that_is_received_twice_ends_no_later_session",
    ),
    Protection(
        "a logout token of a session ends that session only",
        "trainops.http.oidc.logout:_is_named",
        'return bool(begun["sid"] == at_provider)',
        "return True",
        f"{BACK_CHANNEL}::test_a_session_at_the_provider_ends_its_own_only",
    ),
    Protection(
        "a refused person loses the role",
        "trainops.http.oidc.accounts:sign_in",
        "_follow_roles(identity.user, None if problem else role_of(oidc, claims))",
        "pass",
        f"{OIDC}::test_a_removed_group_takes_the_role_away_also_from_tokens",
    ),
    Protection(
        "the session of a provider ends",
        "trainops.http.oidc.flow:finish",
        "request.session.set_expiry(timezone.now() + timedelta(hours=oidc.session_hours))",
        "pass",
        f"{OIDC}::test_a_session_of_the_provider_ends_by_itself",
    ),
    Protection(
        "requests to the provider reach allowed addresses only",
        "trainops.http.oidc.requests:ask",
        "Reachable(oidc.networks, NETWORKS)",
        '__import__("trainops.http.connections", fromlist=["x"]).Reachable('
        '__import__("trainops.networks", fromlist=["x"]).allowed("N", {"N": "1"}), NETWORKS)',
        f"{OIDC}::test_private_addresses_are_reached_only_if_that_is_allowed",
    ),
]
