"""Faults of credentials in clusters with `security=`: users and authority are those of the test (A5, J1)."""

from __future__ import annotations

import pytest
from harrow import (
    Harrow,
    Security,
    VerdictError,
    expire_certificate,
    expire_token,
    refuse_reauthentication,
    revoke_acl,
    rotate_certificate,
    rotate_credentials,
)
from harrow.faults import Fault
from long_runs import long_run
from persistent_app import App, run

SHORT_SESSIONS = Security("sasl_ssl", reauthenticate_after=1)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        pytest.param(
            rotate_credentials("shop", seconds=1),
            "_AUTHENTICATION",
            marks=pytest.mark.harrow(security="sasl_ssl"),
            id="password of SCRAM",
        ),
        pytest.param(
            rotate_credentials("shop", seconds=1),
            "_AUTHENTICATION",
            marks=(pytest.mark.harrow(security="sasl_ssl:PLAIN"), long_run),
            id="password of PLAIN",
        ),
        pytest.param(
            refuse_reauthentication("shop", seconds=1),
            "_AUTHENTICATION",
            marks=(pytest.mark.harrow(security=SHORT_SESSIONS), long_run),
            id="session",
        ),
        pytest.param(
            expire_token("shop", seconds=1),
            "_AUTHENTICATION",
            marks=(pytest.mark.harrow(security="sasl_ssl:OAUTHBEARER"), long_run),
            id="token",
        ),
        pytest.param(
            expire_certificate(seconds=1),
            "_SSL",
            marks=pytest.mark.harrow(security="sasl_ssl"),
            id="expired certificate",
        ),
        pytest.param(
            rotate_certificate(ca="new", seconds=1),
            "_SSL",
            marks=(pytest.mark.harrow(security="mtls"), long_run),
            id="certificate of another authority",
        ),
    ],
)
def test_a_service_meets_the_fault_and_loses_nothing(harrow: Harrow, fault: Fault, error: str) -> None:
    topic = harrow.topic("orders", partitions=2)
    app = App(harrow, topic, harrow.client_config("shop"))
    rows = run(harrow, app, fault)
    assert rows["healed"]["evidence"]["armed"] == []
    assert error in app.errors
    harrow.verify(topic, record_id="id", expected=app.sent)


@pytest.mark.harrow(security=Security("sasl_ssl", acls=True))
def test_a_service_that_loses_a_right_waits_until_it_is_back(harrow: Harrow) -> None:
    topic = harrow.topic("orders", partitions=2)
    harrow.allow("shop", "WRITE", topic)
    harrow.allow("shop", "IDEMPOTENT_WRITE")
    app = App(harrow, topic, harrow.client_config("shop"))
    rows = run(harrow, app, revoke_acl("shop", "WRITE", topic, seconds=1))
    assert rows["effect"]["evidence"]["denied_operations"] > 0
    assert "TOPIC_AUTHORIZATION_FAILED" in app.errors
    harrow.verify(topic, record_id="id", expected=app.sent, guarantee="no-loss")


@long_run
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(rotate_credentials("shop", seconds=2), marks=pytest.mark.harrow(security="sasl_ssl")),
        pytest.param(
            refuse_reauthentication("shop", first_logins=False, seconds=2),
            marks=pytest.mark.harrow(security=SHORT_SESSIONS),
        ),
        pytest.param(expire_token("shop", seconds=2), marks=pytest.mark.harrow(security="sasl_ssl:OAUTHBEARER")),
        pytest.param(expire_certificate(seconds=2), marks=pytest.mark.harrow(security="ssl")),
        pytest.param(rotate_certificate(ca="new", seconds=2), marks=pytest.mark.harrow(security="mtls")),
    ],
    ids=lambda fault: fault.kind,
)
def test_the_twin_that_does_not_send_again_loses_records(harrow: Harrow, fault: Fault) -> None:
    """The wrong twin of the service above; that of `revoke_acl` is in `faults/test_real_credential_faults.py`."""
    topic = harrow.topic("orders", partitions=2)
    app = App(harrow, topic, {**harrow.client_config("shop"), "message.timeout.ms": 500}, drops=True)
    run(harrow, app, fault)
    assert "_MSG_TIMED_OUT" in app.errors
    with pytest.raises(VerdictError) as found:
        harrow.verify(topic, record_id="id", expected=app.sent)
    assert found.value.verdict.anomaly_names() == {"missing"}
