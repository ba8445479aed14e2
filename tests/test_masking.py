import os

import pytest

from distdbg.masking import MASK, mask, mask_argv, mask_text


@pytest.mark.parametrize(
    "name",
    "HF_TOKEN WANDB_API_KEY WANDB_KEY AWS_SECRET_ACCESS_KEY DB_PASSWORD PGPASSWORD MYSQL_PWD dbPassword apiKey "
    "X-Api-Key GOOGLE_CREDENTIALS AZURE_SAS GH_PAT SENTRY_DSN SLACK_WEBHOOK --auth-token COMET_APIKEY SIG "
    "AZURE_STORAGE_CONNECTION_STRING connectionString DB_CONNSTR SLACK_WEBHOOK_URL LDAP_BINDPW bindPw BOT_OAUTH "
    "OAUTH2 REDISCLI_AUTH HMAC_SALT".split(),
)
def test_names_that_sound_secret(name):
    assert mask(name, "x/y") == MASK


@pytest.mark.parametrize(
    "name",
    "DB_PASSWORD PGPASSWORD --passwd MYSQL_PWD DB_PASS CLIENT_SECRET WANDB_API_KEY apiKey AWS_ACCESS_KEY OTP "
    "BINDPW".split(),
)
def test_a_password_that_is_a_number(name):
    assert mask(name, "20241105") == MASK
    assert mask_argv([f"{name}=123456", "--db-password", "123456"]) == [f"{name}={MASK}", "--db-password", MASK]
    assert mask("X", f"{name}=1234; {name}: 5") == f"{name}={MASK}; {name}: {MASK}"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PATH", "/usr/bin:/bin"),
        ("PWD", "/home/me"),
        ("TOKENIZERS_PARALLELISM", "false"),
        ("MAX_TOKENS", "4096"),
        ("BATCH_TOKENS", "1.5M"),
        ("NUM_KEYS", "8"),
        ("PAD_TOKEN_ID", "0"),
        ("CONFIG", '{"num_key_value_heads": 8, "max_tokens": 4096, "key": 3}'),
        ("USE_AUTH_TOKEN", "true"),
        ("GIT_AUTHOR_NAME", "Ada"),
        ("SSH_AUTH_SOCK", "/tmp/agent"),
        ("TOKEN_FILE", "/run/token"),
        ("KEYBOARD", "us"),
        ("MONKEY", "see"),
        ("SORT_KEY", "loss"),
        ("CACHE_KEY", "da39a3ee5e6b4b0d3255"),
        ("DATABASE_URL", "postgres://host/db"),
        ("TOKEN_URL", "https://login.example.org/oauth2/token"),
        ("NCCL_IB_QPS_PER_CONNECTION", "4"),
        ("SSH_CONNECTION", "10.0.0.1 50022 10.0.0.2 22"),
        ("SALT", "7"),
        ("SLURM_WORKING_CLUSTER", "c:host:6817:10240:109"),
        ("SLURM_CPU_BIND", "quiet,mask_cpu:0x00000000FFFFFFFF"),
        ("PMIX_SERVER_URI41", "pmix-server.1;tcp4://10.0.0.1:4242"),
        ("MODEL", "https://huggingface.co/me/Mixtral-8x7B-Instruct-v01-GPTQ-4bit-128g/resolve/" + "da39a3ee5e" * 4),
        ("LR", "1e-3"),
        ("NCCL_DEBUG_FILE", "/tmp/nccl.%h.%p"),
        ("COMMIT", "da39a3ee5e6b4b0d3255bfef95601890afd80709"),
        ("REMOTE", "git@github.com:me/project.git"),
        ("URL", "https://example.org/a?b=c#d"),
        ("TIME", "12:30:00"),
        ("ODD", os.fsdecode(b"caf\xe9")),
        ("EMPTY_TOKEN", ""),
        ("SCRIPT", "examples/hf_trainer.py:20"),
    ],
)
def test_what_is_no_secret_stays(name, value):
    assert mask(name, value) == value


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("hf_abcdefghijk", MASK),
        ("ghp_0123456789abcdef", MASK),
        ("AKIAIOSFODNN7EXAMPLE", MASK),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc", MASK),
        ("--lr 1 sk-abcdefghijklmnop --x", f"--lr 1 {MASK} --x"),
        ("https://me:hunter2@host/x", f"https://{MASK}@host/x"),
        ("https://onlytoken@host/x", f"https://{MASK}@host/x"),
        ("postgres://me:p@ss@host/db", f"postgres://{MASK}@host/db"),
        ("http://h/p?user=me&sig=abcdef&token=ghi", f"http://h/p?user=me&sig={MASK}&token={MASK}"),
        ("https://h/api?token=abcdefgh12345", f"https://h/api?token={MASK}"),
        ("h:80/api?token=abcdefgh12345", f"h:80/api?token={MASK}"),
        ("url=https://h/api?api_key=12345678", f"url=https://h/api?api_key={MASK}"),
        ('{"password": "abc def", "n": 2}', f'{{"password": "{MASK}", "n": 2}}'),
        (
            "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=X6n7zIl+9JE3XVbuizYg==;Suffix=core",
            f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={MASK};Suffix=core",
        ),
        (
            "https://hooks.slack.com/services/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",
            f"https://hooks.slack.com/services/T0123ABCD/B0123ABCD/{MASK}",
        ),
        ("Authorization: Bearer abcdef123456", f"Authorization: {MASK} {MASK}"),
        ("export HF_TOKEN='abc'; python x.py", f"export HF_TOKEN='{MASK}'; python x.py"),
        ("connect({'api_key': 'q7Zx9LmP2vBn'}, 'n')", f"connect({{'api_key': '{MASK}'}}, 'n')"),
        ("raised MIIEpAIBAAKCAQEAq7Zx9LmP2vBn4RtY8sKd5HjG at t.py:3", f"raised {MASK} at t.py:3"),
        ("dckr_pat_q7Zx9LmP2vBn4RtY wandb_v1_q7Zx9LmP2vBn4RtY", f"{MASK} {MASK}"),
        ('{"lr": 1, "api_key": "abc", "n": 2}', f'{{"lr": 1, "api_key": "{MASK}", "n": 2}}'),
        ("-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----", MASK),
    ],
)
def test_secrets_within_a_value(value, shown):
    masked = mask("ANYTHING", value)
    assert masked == shown or masked.replace(f"{MASK} {MASK}", f"Bearer {MASK}") == shown
    for secret in ("hunter2", "p@ss", "abc", "MII", "abcdef"):
        assert secret not in masked


def test_arguments():
    argv = ["train.py", "--token", "s3cret", "--api-key=abc", "--lr", "1e-3", "postgres://u:p@h/d", "--env"]
    argv += ["WANDB_API_KEY=abc", "--env=HF_TOKEN=abc", "--max-tokens", "4096", "--password", "--resume", "-k", "v"]
    argv += ["--hook", "https://h/api?token=abc", "--env=URL=https://h/api?token=abc"]
    assert mask_argv(argv) == [
        "train.py",
        "--token",
        MASK,
        f"--api-key={MASK}",
        "--lr",
        "1e-3",
        f"postgres://{MASK}@h/d",
        "--env",
        f"WANDB_API_KEY={MASK}",
        f"--env=HF_TOKEN={MASK}",
        "--max-tokens",
        "4096",
        "--password",
        "--resume",
        "-k",
        "v",
        "--hook",
        f"https://h/api?token={MASK}",
        f"--env=URL=https://h/api?token={MASK}",
    ]


def test_a_long_value_does_not_take_long():
    assert len(mask("X", "a=" * 200_000)) == 400_000
    assert mask("X", "a-" * 60_000) == "a-" * 60_000
    assert len(mask("X", "://" + "@a" * 100_000)) > 100
    assert mask("X", "-----BEGIN PRIVATE KEY-----" * 2000)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "part",
    "A|a-|-eyJ|token|password|x.secret_|api_key-|Bearer |a@|=:|://|://a/|--a|--a |sig=|key".split("|"),
)
def test_long_text_of_a_program_does_not_take_long(part):
    assert mask_text(part * (200_000 // len(part)))


def test_a_name_is_found_wherever_a_word_begins():
    assert mask_text("(my.db-password=hunter22) x_api_key: abcd1234") == f"(my.db-password={MASK}) x_api_key: {MASK}"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("failed with AccountKey=X6n7zIl+9JE3XVbuizYghrFsaXkc==", f"failed with AccountKey={MASK}"),
        (
            "GET https://h/k?X-Amz-Signature=0c28792401279123c7b44cd2e73808c1 403",
            f"GET https://h/k?X-Amz-Signature={MASK} 403",
        ),
        ("https://h/a?sv=2020&sig=dPZILYqR4W51bgH5%2FK4x%3D&n=1", f"https://h/a?sv=2020&sig={MASK}&n=1"),
        ("run train.py --password 6I1Ydk5p1ujgD9 --lr 1", f"run train.py --password {MASK} --lr 1"),
        ("['--db-password', '6I1Ydk5p1ujgD9', '--lr']", f"['--db-password', '{MASK}', '--lr']"),
        ("post to https://h/hook/q7Zr0aPx5z11WvUt9kQ2mLs4: 404", f"post to https://h/hook/{MASK} 404"),
    ],
)
def test_secrets_in_the_text_of_a_program(text, shown):
    assert mask_text(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "missing key: model.layers.0.self_attn.q_proj.weight_v1",
        "cache_key=da39a3ee5e6b4b0d3255bfef95601890afd80709",
        "FX graph cache hit, key=fkw7ed6xngdcq3x7q2hd2kp4dpldm5zq6r4k",
        "signature: forward(self, x)",
        "use --token or --password option, --api-key for the other",
        "--num-keys 4096abc --sort-key layer12",
        "https://github.com/pytorch/pytorch/commit/da39a3ee5e6b4b0d3255bfef95601890afd80709",
        "https://download.pytorch.org/whl/cu128/torch-2.13.0%2Bcu128-cp312-cp312-manylinux_2_28_x86_64.whl",
        "https://github.com/pytorch/pytorch/blob/v2.13.0/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp#L2021",
    ],
)
def test_keys_hashes_and_addresses_that_are_no_secret_stay(text):
    assert mask_text(text) == text
