"""Secrets of many kinds are found wherever they stand, and nothing else is."""

import random
import string

import pytest

from text.secrets import find_secrets, is_available, mask_text, mask_values

pytestmark = pytest.mark.skipif(not is_available(), reason="no wheel of kingfisher-secret-scanner for this machine")

LETTERS = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
WEB = LETTERS + "_-"


def made(length, letters=LETTERS, seed=0):
    """A random text that has lower and upper case and digits where the letters have them."""
    chosen = random.Random(f"{length}{letters}{seed}")
    text = "".join(chosen.choice(letters) for _ in range(length))
    wanted = [
        kind for kind in (string.digits, string.ascii_lowercase, string.ascii_uppercase) if set(kind) & set(letters)
    ]
    return text if all(set(kind) & set(text) for kind in wanted) else made(length, letters, seed + 1)


def pem(kind):
    lines = "\n".join(made(64, LETTERS + "+/", n) for n in range(10))
    return f"-----BEGIN {kind}-----\n{lines}\n-----END {kind}-----"


# Secret, and the text around it.
KINDS = {
    "AWS key id": ("AKIA" + made(16, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"), "{}"),
    "AWS secret": (made(40, LETTERS + "/+"), "aws_secret_access_key = {}"),
    "GitHub": ("ghp_" + made(36), "the token {} of the build"),
    "GitHub, fine": ("github_pat_" + made(22) + "_" + made(59), "{}"),
    "GitLab": ("glpat-" + made(20, WEB), "{}"),
    "Slack": ("xoxb-" + made(12, string.digits) + "-" + made(12, string.digits, 1) + "-" + made(24), "{}"),
    "Stripe": ("sk_live_" + made(24), "{}"),
    "OpenAI": ("sk-proj-" + made(48), "{}"),
    "Anthropic": ("sk-ant-api03-" + made(93, WEB) + "AA", "{}"),
    "Google": ("AIza" + made(35, WEB), "{}"),
    "Google client": ("GOCSPX-" + made(28, WEB), "{}"),
    "Azure storage": (made(86, LETTERS + "/+") + "==", "AccountName=shop;AccountKey={};EndpointSuffix=x"),
    "web token": (f"eyJhbGciOiJIUzI1NiJ9.eyJ{made(40)}.{made(43, WEB)}", "{}"),
    "bearer": (made(40), "Authorization: Bearer {}"),
    "basic, without digits": ("YnFhYlQzZkdZcHNwWlZxRXJt".replace("3", "D"), "Authorization: Basic {}"),
    "LangSmith": (f"lsv2_pt_{made(32, HEX)}_{made(10, HEX)}", "{}"),
    "password, letters alone": ("pedqLLDHUSqL", "Password: {}"),
    "basic": (made(28) + "==", "Authorization: Basic {}"),
    "RSA": (pem("RSA PRIVATE KEY"), "{}"),
    "OpenSSH": (pem("OPENSSH PRIVATE KEY"), "{}"),
    "PGP": (pem("PGP PRIVATE KEY BLOCK"), "{}"),
    "npm": ("npm_" + made(36), "{}"),
    "PyPI": ("pypi-AgEIcHlwaS5vcmc" + made(80, WEB), "{}"),
    "SendGrid": ("SG." + made(22, WEB) + "." + made(43, WEB), "{}"),
    "Twilio": (made(32, HEX), "TWILIO_AUTH_TOKEN={}"),
    "Telegram": (made(10, "123456789") + ":AA" + made(33, WEB), "{}"),
    "Discord hook": ("https://discord.com/api/webhooks/" + made(18, "123456789") + "/" + made(68, WEB), "{}"),
    "Hugging Face": ("hf_" + made(34, string.ascii_letters), "{}"),
    "Databricks": ("dapi" + made(32, HEX), "{}"),
    "New Relic": ("NRAK-" + made(27, string.ascii_uppercase + string.digits), "{}"),
    "Vault": ("hvs." + made(95, WEB), "{}"),
    "Notion": ("ntn_" + made(46), "{}"),
    "MongoDB": (made(14), "mongodb+srv://app:{}@cluster0.abcd.mongodb.net/shop"),
    "Postgres": (made(14), "postgres://app:{}@db.internal:5432/shop"),
    "address": (made(14), "https://deploy:{}@git.example.org/tea.git"),
    "password": (made(12), "password={}"),
    "password in JSON": (made(14), '{{"user": "ann", "password": "{}"}}'),
    "password in YAML": (made(14), "db_password: '{}'"),
    "password in prose": ("Tr0ub4dor&" + made(4), "the password is {}"),
    "Passwort": (made(12), "Passwort: {}"),
    "environment": (made(12), "PGPASSWORD={} psql -h db"),
    "connection": (made(14), "Server=db;User Id=sa;Password={};"),
    "header": (made(32), "curl -H 'X-API-Key: {}' https://api.example.org"),
    "Django": (made(50), "SECRET_KEY = '{}'"),
    "netrc": (made(14), "machine api.example.org login ann password {}"),
    "own key": ("mnk_" + made(40, WEB), "{}"),
    "private": ("the safe opens with 2181", "<private>{}</private>"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("around", ["{}", "We found it on Monday: {}\n\nThen we went on.", "* déjà vu – {} ☕"])
def test_a_secret_is_masked_and_the_text_around_it_stays(kind, around):
    secret, context = KINDS[kind]
    text = around.format(context.format(secret))
    found = find_secrets(text)
    masked = mask_text(text, found)
    for line in secret.split("\n"):
        assert line[:-2] not in masked
    before, after = around.split("{}")
    assert masked.startswith(before)
    assert masked.endswith(after)
    assert find_secrets(masked) == [], "what is masked is masked once"


@pytest.mark.parametrize(
    "text",
    [
        "def login(user, password=None, token=''): return check(user, password)",
        "Ask for the password: it is in the vault. The secret: patience.",
        "password: ${DB_PASSWORD}, token=$TOKEN, secret = os.environ['SECRET']",
        "api_key = settings.API_KEY; password = getpass()",
        "The commit 3f786850e387550fdab836ed7e6dc881de23001b fixed issue 1234567890.",
        "id 123e4567-e89b-12d3-a456-426614174000, see chatcmpl-70c8LVUSYoSbdQTyONgJfcVU542wO",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk",
        "tokens: 4096, max_tokens=512, token count is 1200",
        "Set `<private>` around what agents should not keep.",
        "https://example.org/reset?next=/home and http://localhost:8000/@ann",
        "test_password_reset_for_user_2_sends_one_mail_2024",
    ],
)
def test_other_texts_stay_as_they_are(text):
    assert find_secrets(text) == []


def test_values_are_known_by_their_names():
    given = {"title": "Deploy", "settings": {"password": "x7Kq91LmZp"}, "tags": ["tea", "AKIAIOSFODNN7EXAMPLQ"], "n": 3}
    masked, marks = mask_values(given)
    assert masked == {
        "title": "Deploy",
        "settings": {"password": "[password …Zp]"},
        "tags": ["tea", "[AWS key id …LQ]"],
        "n": 3,
    }
    assert marks == ["[password …Zp]", "[AWS key id …LQ]"]
    assert mask_values({"content": "Tea", "authors": ("Ann",)}) == ({"content": "Tea", "authors": ("Ann",)}, [])


def test_names_that_are_no_texts_are_kept():
    key = f"AKIA{made(16, string.ascii_uppercase)[:15]}7"
    masked, marks = mask_values({"by year": {2024: key, None: "Tea"}})
    assert masked == {"by year": {2024: marks[0], None: "Tea"}}
