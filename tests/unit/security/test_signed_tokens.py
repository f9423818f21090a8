"""Signed tokens: what is in them, the keys of their issuer, and how a broker reads these (A5)."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from harrow.cluster.host.real.host import RealHost
from harrow.cluster.network.issuer_keys import IssuerKeys
from harrow.cluster.security.sasl.jwt import SignedTokens, TokenError, coded_json, keys_of_jwks, unsecured_token
from harrow.harness.security.token_issuer import IssuerKey, TokenIssuer

ISSUER = TokenIssuer()


def tokens(*audiences: str) -> SignedTokens:
    keys = keys_of_jwks(ISSUER.document())
    return SignedTokens(now_ms=lambda: int(time.time() * 1000), key=keys.get, issuer=ISSUER.name, audiences=audiences)


def test_a_token_of_the_issuer_names_its_user_and_its_end() -> None:
    end_s = int(time.time()) + 60
    login = tokens("kafka", "other").check(ISSUER.token("alice", aud=["kafka"], exp=end_s))
    assert (login.user, login.expires_ms) == ("alice", end_s * 1000)


@pytest.mark.parametrize(
    "claims",
    [
        *({"iss": "other"}, {"iss": None}, {"aud": "other"}, {"aud": None}, {"aud": "other kafka"}, {"aud": ["other"]}),
        *({"exp": 1}, {"exp": "x"}, {"iat": 2**33}, {"iat": None}, {"nbf": 2**33}, {"sub": None}),
        *({"scope": ""}, {"scope": ["a", " a"]}, {"scope": [1]}),
    ],
)
def test_a_token_with_a_wrong_claim_is_refused(claims: dict[str, Any]) -> None:
    with pytest.raises(TokenError):
        tokens("kafka").check(ISSUER.token("alice", lifetime_s=60, **{"aud": "kafka", **claims}))


def test_scopes_and_audiences_that_a_token_may_have() -> None:
    for claims in ({"scope": "a a"}, {"scope": ["a", "b"]}, {"scope": 7}, {"aud": ["other", "kafka"]}):
        assert tokens("kafka").check(ISSUER.token("alice", lifetime_s=60, **claims)).user == "alice"
    assert tokens().check(ISSUER.token("alice", lifetime_s=60, aud=None)).user == "alice"


def test_a_token_that_no_key_of_the_issuer_signed_is_refused() -> None:
    good = ISSUER.token("alice")
    header, claims, signature = good.split(".")
    other = coded_json({"sub": "bob", "iss": ISSUER.name, "exp": 2**33})
    stranger = TokenIssuer(ISSUER.name)
    for wrong in (
        f"{header}.{other}.{signature}",
        f"{header}.{claims}.",
        f"{coded_json({'alg': 'none'})}.{claims}.",
        f"{coded_json({'alg': 'HS256', 'kid': 'key-1'})}.{claims}.{signature}",
        unsecured_token({"sub": "alice", "exp": 2**33}),
        stranger.token("alice"),
    ):
        with pytest.raises(TokenError, match="no key of the issuer"):
            tokens().check(wrong)


def test_a_document_without_keys_has_none() -> None:
    assert keys_of_jwks("[]") == keys_of_jwks('{"keys": [{"kty": "EC"}, 1]}') == {}
    for wrong in ("", "{", '{"keys": [{"kty": "RSA", "n": "!", "e": "AQAB"}]}'):
        with pytest.raises(ValueError, match=r".+"):
            keys_of_jwks(wrong)


def test_keys_are_read_before_they_are_used_and_again_for_a_key_that_is_missing(tmp_path: Path) -> None:
    async def main() -> None:
        host = RealHost("broker-1", str(tmp_path))
        with TokenIssuer() as issuer:
            keys = IssuerKeys(host, issuer.keys_url, (3_600_000, 1, 10))
            await keys.ready()
            assert keys.key("key-1") is not None
            issuer.keys.append(IssuerKey.make("key-2"))
            await keys.ready()
            assert keys.key("key-2") is None, "not due"
            await host.tasks.sleep(5)
            await keys.ready()
            assert keys.key("key-2") is not None, "a token named it"
        issuer.keys.clear()
        assert keys.key("key-3") is None
        await host.tasks.sleep(5)
        await keys.ready()
        assert keys.key("key-1") is not None, "the keys of before stay while the issuer is away"
        await host.stop()

    asyncio.run(main())


def test_keys_may_be_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text(ISSUER.document())

    async def main() -> None:
        host = RealHost("broker-1", str(tmp_path))
        keys = IssuerKeys(host, (tmp_path / "keys.json").as_uri(), (1, 1, 1))
        await keys.ready()
        assert keys.key("key-1") is not None
        await host.stop()

    asyncio.run(main())
