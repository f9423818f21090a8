"""The SASL mechanisms as rules: the vectors of their RFCs, and what Kafka says of what is wrong (A5)."""

from __future__ import annotations

import base64
import json
from random import Random

import pytest
from harrow.cluster.config import BrokerConfig
from harrow.cluster.config.sasl_table import JWKS_VALIDATOR
from harrow.cluster.errors import ConfigError
from harrow.cluster.listeners import Address, Listener, SecurityProtocol
from harrow.cluster.security.fingerprints import of_certificate
from harrow.cluster.security.sasl.exchange import Login, SaslError, SaslRefusedError
from harrow.cluster.security.sasl.jaas import JaasEntry, jaas_text, parse_jaas
from harrow.cluster.security.sasl.jwt import TokenError, UnsecuredTokens, coded_json, unsecured_token
from harrow.cluster.security.sasl.mechanisms import ListenerMechanisms, NoCredentials, peer_login
from harrow.cluster.security.sasl.oauthbearer import OAuthBearerClient, OAuthBearerServer
from harrow.cluster.security.sasl.plain import PlainClient, PlainServer
from harrow.cluster.security.sasl.scram import (
    FoundCredential,
    ScramClient,
    ScramCredential,
    ScramMechanism,
    ScramServer,
    nonce_of,
)
from harrow.harness.security.certificates import CertificateAuthority

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512
NOW_MS = 1_000_000_000


# ------------------------------------------------------------------- PLAIN


def test_a_password_logs_its_user_in() -> None:
    server, client = PlainServer({"tim": "tanstaaftanstaaf"}), PlainClient("tim", "tanstaaftanstaaf")
    token = client.evaluate(b"")
    assert token == b"\0tim\0tanstaaftanstaaf"  # the example of RFC 4616
    assert server.evaluate(token) == b""
    assert client.complete
    assert server.login == Login(user="tim")


@pytest.mark.parametrize(
    ("token", "text"),
    [
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0a\0b\0c\0d", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0\0b", "Authentication failed: username not specified"),
        (b"\0tim\0", "Authentication failed: password not specified"),
        (b"\0tim\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0tom\0right", "Authentication failed: Invalid username or password"),
        (b"\0\xff\0right", "Authentication failed: Invalid username or password"),
        (b"tom\0tim\0right", "Authentication failed: Client requested an authorization id that is different"),
    ],
)
def test_plain_refuses_with_the_text_of_kafka(token: bytes, text: str) -> None:
    server = PlainServer({"tim": "right"})
    with pytest.raises(SaslRefusedError, match=text):
        server.evaluate(token)
    assert server.login is None


# ------------------------------------------------------------------- SCRAM

VECTORS = [
    # RFC 7677, section 3
    (
        SHA_256,
        "W22ZaJ0SNY7soEsUEjb6gQ==",
        "rOprNGfwEbeRWgbNEkqO",
        "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ),
]


@pytest.mark.parametrize(("mechanism", "salt", "nonce", "more", "proof", "signature"), VECTORS)
def test_an_exchange_is_that_of_the_rfc(
    mechanism: ScramMechanism, salt: str, nonce: str, more: str, proof: str, signature: str
) -> None:
    credential = mechanism.credential_of("pencil", base64.b64decode(salt), 4096)
    server, client = serves(mechanism, "user", credential, more), ScramClient(mechanism, "user", "pencil", nonce)
    first = client.evaluate(b"")
    assert first == f"n,,n=user,r={nonce}".encode()
    answer = server.evaluate(first)
    assert answer == f"r={nonce}{more},s={salt},i=4096".encode()
    final = client.evaluate(answer)
    assert final == f"c=biws,r={nonce}{more},p={proof}".encode()
    answer = server.evaluate(final)
    assert answer == f"v={signature}".encode()
    assert client.evaluate(answer) == b""
    assert client.complete
    assert server.login == Login(user="user")


def serves(mechanism: ScramMechanism, user: str, credential: ScramCredential, nonce: str = "more") -> ScramServer:
    def find(name: str, by_token: bool) -> FoundCredential | None:
        return FoundCredential(credential, Login(user=name)) if name == user and not by_token else None

    return ScramServer(mechanism, find, nonce)


def exchange(server: ScramServer, client: ScramClient) -> None:
    token = b""
    while not client.complete:
        token = client.evaluate(token)
        if not client.complete:
            token = server.evaluate(token)


@pytest.mark.parametrize("mechanism", ScramMechanism)
@pytest.mark.parametrize("user", ["alice", "a=b,c", "=2C", "ALICE"])
def test_a_name_of_any_letters_logs_in(mechanism: ScramMechanism, user: str) -> None:
    server = serves(mechanism, user, mechanism.credential_of("pä,=", b"salt", 4096))
    exchange(server, ScramClient(mechanism, user, "pä,=", "nonce"))
    assert server.login == Login(user=user)


@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("bob", "right")])
def test_a_wrong_password_and_an_unknown_user_fail(user: str, password: str) -> None:
    server = serves(SHA_512, "alice", SHA_512.credential_of("right", b"salt", 4096))
    with pytest.raises(SaslError) as caught:
        exchange(server, ScramClient(SHA_512, user, password, "nonce"))
    assert not isinstance(caught.value, SaslRefusedError)
    assert server.login is None


@pytest.mark.parametrize(
    "first", [b"", b"\xff", b"y,,n=a,r=x", b"p=tls-unique,,n=a,r=x", b"n,,n=a", b"n,,n=a=1,r=x", b"n,,r=x,n=a"]
)
def test_what_is_no_first_message_is_refused(first: bytes) -> None:
    with pytest.raises(SaslError, match="not a SCRAM client first message"):
        serves(SHA_256, "a", SHA_256.credential_of("p", b"s", 4096)).evaluate(first)


@pytest.mark.parametrize(
    "final", [b"", b"c=biws,r=other,p=AAAA", b"c=biws,r=xmore,p=AAAA", b"c=biws,r=xmore,p=" + b"A" * 43 + b"="]
)
def test_what_is_no_final_message_is_refused(final: bytes) -> None:
    server = serves(SHA_256, "a", SHA_256.credential_of("p", b"s", 4096))
    server.evaluate(b"n,,n=a,r=x")
    with pytest.raises(SaslError):
        server.evaluate(final)
    assert server.login is None


def test_a_client_asks_to_be_another_user_and_is_refused() -> None:
    server = serves(SHA_256, "a", SHA_256.credential_of("p", b"s", 4096))
    with pytest.raises(SaslRefusedError, match="authorization id that is different from username"):
        server.evaluate(b"n,a=b,n=a,r=x")


def test_a_server_without_the_password_is_found_out() -> None:
    client = ScramClient(SHA_256, "a", "p", "x")
    client.evaluate(b"")
    client.evaluate(b"r=xmore,s=c2FsdA==,i=4096")
    with pytest.raises(SaslError, match="does not know the password"):
        client.evaluate(b"v=" + base64.b64encode(b"0" * 32))


@pytest.mark.parametrize("first", [b"", b"r=other,s=eA==,i=4096", b"r=xmore,s=eA==,i=1", b"r=xmore,s=eA==,i=99999"])
def test_a_client_does_not_work_for_a_server_that_breaks_the_rules(first: bytes) -> None:
    client = ScramClient(SHA_256, "a", "p", "x")
    client.evaluate(b"")
    with pytest.raises(SaslError):
        client.evaluate(first)


def test_the_text_of_a_credential_is_that_of_kafka() -> None:
    credential = SHA_256.credential_of("pencil", base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096)
    text = str(credential)
    assert text == (
        "salt=W22ZaJ0SNY7soEsUEjb6gQ==,stored_key=WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=,"
        "server_key=wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=,iterations=4096"
    )
    assert ScramCredential.parse(text) == credential
    for wrong in (
        "",
        "salt=x",
        text.replace("salt=", "salt=!"),
        text.replace("4096", "x"),
        text.replace("salt", "sat"),
    ):
        with pytest.raises(ValueError, match=r".+"):
            ScramCredential.parse(wrong)


def test_nonces_are_drawn_from_the_hosts_random_numbers() -> None:
    found = [nonce_of(Random(seed)) for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]
    assert found[0].isalnum()


# ------------------------------------------------------------- OAUTHBEARER


def check(**options: str) -> OAuthBearerServer:
    return OAuthBearerServer(UnsecuredTokens(now_ms=lambda: NOW_MS, options=options).check)


def token_of(**claims: object) -> str:
    return unsecured_token({"sub": "alice", "iat": NOW_MS / 1000 - 1, "exp": NOW_MS / 1000 + 60, **claims})


def test_an_unsecured_token_logs_its_subject_in_until_it_expires() -> None:
    server, client = check(), OAuthBearerClient(token_of())
    assert client.evaluate(server.evaluate(client.evaluate(b""))) == b""
    assert client.complete
    assert server.login == Login(user="alice", expires_ms=NOW_MS + 60_000)


@pytest.mark.parametrize(
    "claims",
    [{"exp": NOW_MS / 1000}, {"iat": NOW_MS / 1000 + 9}, {"sub": ""}, {"sub": 1}, {"exp": None}, {"exp": True}],
)
def test_a_refused_token_is_answered_with_json_before_the_exchange_fails(claims: dict[str, object]) -> None:
    server, client = check(), OAuthBearerClient(token_of(**claims))
    assert server.evaluate(client.evaluate(b"")) == b'{"status":"invalid_token"}'
    with pytest.raises(SaslRefusedError, match=r'^\{"status":"invalid_token"\}$'):
        server.evaluate(b"\x01")


def test_a_token_without_the_scope_is_refused() -> None:
    server = check(unsecuredValidatorRequiredScope="LOGIN")
    assert b"insufficient_scope" in server.evaluate(OAuthBearerClient(token_of(scope=["OTHER"])).evaluate(b""))
    assert server.evaluate(OAuthBearerClient(token_of(scope=["LOGIN", "OTHER"])).evaluate(b"")) == b""


def test_the_clock_of_an_issuer_may_be_off() -> None:
    server = check(unsecuredValidatorAllowableClockSkewMs="10000")
    assert server.evaluate(OAuthBearerClient(token_of(iat=NOW_MS / 1000 + 9)).evaluate(b"")) == b""


@pytest.mark.parametrize("message", [b"", b"n,,\x01\x01", b"n,,\x01auth=Basic x\x01\x01", b"\xff" * 9, b"n,a=b"])
def test_what_is_no_bearer_token_fails(message: bytes) -> None:
    with pytest.raises(SaslError):
        check().evaluate(message)


@pytest.mark.parametrize("token", ["a.b", "a.b.c", "e30.e30.AA", f"{coded_json({'alg': 'RS256'})}.e30.", "[].[]."])
def test_what_is_no_unsecured_token_is_refused(token: str) -> None:
    with pytest.raises(TokenError):
        UnsecuredTokens(now_ms=lambda: NOW_MS, options={}).check(token)


def test_errors_of_tokens_are_json() -> None:
    assert json.loads(TokenError("x").as_json()) == {"status": "invalid_token"}
    assert json.loads(TokenError("x", scope="a").as_json()) == {"status": "insufficient_scope", "scope": "a"}


# ---------------------------------------------------------------- settings

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
LISTENER = Listener(
    name="CLIENTS",
    bind=Address("127.0.0.1", 9092),
    advertised=Address("127.0.0.1", 9092),
    security_protocol=SecurityProtocol.SASL_PLAINTEXT,
)


def mechanisms(settings: dict[str, object]) -> ListenerMechanisms:
    config = BrokerConfig.parse({f"listener.name.clients.{name}": value for name, value in settings.items()})
    return ListenerMechanisms(
        config=config, listener=LISTENER, credentials=NoCredentials(), random=Random(1), now_ms=lambda: NOW_MS
    )


SIGNED: dict[str, object] = {
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "oauthbearer.sasl.jaas.config": f"{OAUTH_MODULE} required;",
    "oauthbearer.sasl.server.callback.handler.class": JWKS_VALIDATOR,
    "oauthbearer.sasl.oauthbearer.jwks.endpoint.url": "file:///keys",
}


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, "GSSAPI is not served here; use OAUTHBEARER, PLAIN"),
        ({"sasl.enabled.mechanisms": "SCRAM-SHA-512"}, "set listener.name.clients.scram-sha-512.sasl.jaas.config to"),
        ({"sasl.enabled.mechanisms": "PLAIN", "plain.sasl.jaas.config": "x"}, "control flag not specified"),
        (
            {"sasl.enabled.mechanisms": "PLAIN", "plain.sasl.jaas.config": f"{OAUTH_MODULE} required;"},
            "PLAIN needs the login module .*PlainLoginModule",
        ),
        (
            {
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "oauthbearer.sasl.jaas.config": f"{OAUTH_MODULE} required;",
                "oauthbearer.sasl.server.callback.handler.class": JWKS_VALIDATOR,
            },
            "set sasl.oauthbearer.jwks.endpoint.url",
        ),
        (
            SIGNED,
            "expected.audience to the audience that they name, or sasl.oauthbearer.allow.unverified.audience=true",
        ),
        (SIGNED | {"oauthbearer.sasl.oauthbearer.expected.audience": "kafka"}, "expected.issuer to the issuer"),
        ({"sasl.enabled.mechanisms": "PLAINER"}, "expected one of"),
        ({"plain.sasl.jaas": "x"}, "no such broker setting"),
    ],
)
def test_settings_that_let_no_client_log_in_are_refused(settings: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        mechanisms(settings).check()


def test_signed_tokens_of_any_audience_and_issuer_need_two_settings() -> None:
    named = {f"oauthbearer.sasl.oauthbearer.expected.{name}": "kafka" for name in ("audience", "issuer")}
    anyone = {f"oauthbearer.sasl.oauthbearer.allow.unverified.{name}": True for name in ("audience", "issuer")}
    for settings in (named, anyone):
        mechanisms(SIGNED | settings).check()


def test_a_setting_of_a_mechanism_comes_before_that_of_its_listener() -> None:
    found = mechanisms({"plain.connections.max.reauth.ms": 1, "connections.max.reauth.ms": 2})
    assert (found.session_ms("PLAIN"), found.session_ms("SCRAM-SHA-256")) == (1, 2)


@pytest.mark.parametrize("settings", [{}, {"sasl.mechanism.inter.broker.protocol": "PLAIN"}])
def test_brokers_need_a_name_to_log_in(settings: dict[str, object]) -> None:
    jaas = {"listener.name.clients.plain.sasl.jaas.config": f"{PLAIN_MODULE} required user_a=b;"}
    with pytest.raises(ConfigError, match=r"GSSAPI: not served here|needs username and password"):
        peer_login(BrokerConfig.parse(settings | jaas), LISTENER, Random(1), lambda: NOW_MS)


# -------------------------------------------------------------------- JAAS


def test_a_jaas_entry_is_read_as_java_reads_it() -> None:
    entry = parse_jaas("s", 'a.b.Module required /* x */ username="a\\"b" user_x=\'y z\' // end\n word=p-q_1;')
    assert (entry.module, entry.options) == ("a.b.Module", {"username": 'a"b', "user_x": "y z", "word": "p-q_1"})
    assert entry.users() == {"x": "y z"}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "Login module not specified"),
        ("a.Module", "Login module control flag not specified"),
        ("a.Module needed;", "Invalid login module control flag"),
        ("a.Module required a=;", "Value not specified for key 'a'"),
        ("a.Module required a=1;", "Value not specified for key 'a'"),
        ("a.Module required a", "Value not specified for key 'a'"),
        ('a.Module required a="b"', "not terminated by semi-colon"),
        ("a.Module required; b.Module required;", "several login modules"),
    ],
)
def test_a_jaas_entry_that_is_wrong_is_refused(text: str, error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        parse_jaas("sasl.jaas.config", text)


@pytest.mark.parametrize("password", ["secret", 'a "quoted" \\ one', "a b;c=d", "ä'ö"])
def test_a_jaas_entry_that_is_written_is_read_back(password: str) -> None:
    options = {"username": "admin", "user_alice": password}
    assert parse_jaas("sasl.jaas.config", jaas_text("a.b.C", options)) == JaasEntry("a.b.C", options)


def test_a_fingerprint_names_a_certificate_whatever_follows_it() -> None:
    authority = CertificateAuthority()
    chain, other = authority.issue("broker").chain, authority.issue("broker").chain
    end = "-----END CERTIFICATE-----\n"
    assert of_certificate(chain) == of_certificate(chain[: chain.index(end)] + end) != of_certificate(other)
    assert of_certificate("") == ""
