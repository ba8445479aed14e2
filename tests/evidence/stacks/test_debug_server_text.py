"""Text with the answers of all ranks, as torch.distributed.debug writes it into files and shows it in pages."""

import pytest

from distdbg.evidence.stacks.stack_texts import RankAnswer, has_rank_answers, read_rank_answers

ANSWER = 'Thread 0x07 (most recent call first):\n  File "a.py", line 3 in <module>\n'


def make_file(handler, answers):
    """`answers`: the text of each rank, or the status that its server answered with."""
    failed = [rank for rank, answer in enumerate(answers) if isinstance(answer, int)]
    lines = [f"PARTIAL DATA: {len(answers) - len(failed)}/{len(answers)} workers responded"] if failed else []
    lines += [f"  Rank {rank}: refused" for rank in failed] + [""] * bool(failed)
    for rank, answer in enumerate(answers):
        lines.append(f"=== Rank {rank}: http://node{rank}:5000{rank}/handler/{handler}? ===")
        lines.append(f"Error: {answer}" if isinstance(answer, int) else answer)
    return "\n".join(lines)


def make_page(handler, answers):
    lines = ["", "<!doctype html>", "<head>", "    <title>Stacks - PyTorch Distributed</title>"]
    for rank, answer in enumerate(answers):
        lines += [f"        <h2>Rank {rank}: http://node{rank}:5000{rank}/handler/{handler}?</h2>", "        "]
        if isinstance(answer, int):
            lines += [f"            <p>Failed to fetch: status={answer}</p>", "            <pre>refused</pre>"]
        else:
            lines += [f"            <pre>{answer}</pre>"]
        lines += ["        ", "    "]
    return "\n".join([*lines, "", "</section>"])


@pytest.mark.parametrize("make", [make_file, make_page])
def test_each_rank_has_its_own_answer(make):
    text = make("dump_traceback", [ANSWER, 503, ANSWER])
    assert has_rank_answers(text)
    first, second, third = read_rank_answers(text.split("\n"))
    assert [first.rank, second.rank, third.rank] == [0, 1, 2]
    assert "\n".join(first.lines).rstrip("\n") == ANSWER.rstrip("\n") == "\n".join(third.lines).rstrip("\n")
    assert (first.status, second.status, third.status) == ("", "503", "")


def test_other_text_has_no_answers():
    assert not has_rank_answers("=== Rank 0: ready ===\n" + ANSWER)
    assert list(read_rank_answers(ANSWER.split("\n"))) == []
    assert list(read_rank_answers(make_file("ping", []).split("\n"))) == []
    assert list(read_rank_answers(make_file("ping", [""]).split("\n"))) == [RankAnswer(0)]
