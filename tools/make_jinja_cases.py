#!/usr/bin/env python3
"""Writes tests/chat/data/jinja_cases.json: what Jinja2 renders, or that it fails, for every expression, statement and
template of the test data. Needs the jinja2 package."""
import json
import re
import sys
from datetime import datetime
from pathlib import Path

import jinja2.ext
import jinja2.sandbox

from jinja_statements import STATEMENTS, WHITE_SPACE

DATA = Path(__file__).resolve().parent.parent / "tests/chat/data"
NOW = datetime(2025, 7, 26, 12, 30, 0)


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_pass"), [], [], body).set_lineno(line)

    @staticmethod
    def _pass(caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols, jinja2.ext.do])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


def render(env, source, variables):
    """The text, or the kind of the error: its wording is Jinja2's own."""
    try:
        text = env.from_string(source).render(**variables)
    except RecursionError:
        raise
    except Exception as error:  # whatever a template can do wrong
        return {"error": f"{type(error).__name__}: {str(error)[:100]}"}
    # Addresses of objects differ from run to run: such a case says nothing.
    return None if re.search(r"0x[0-9a-f]{6,}", text) else {"text": text}


def main():
    env = environment()
    variables = json.loads((DATA / "jinja_variables.json").read_text())
    sources = [f"{{{{ {line} }}}}" for line in (DATA / "jinja_expressions.txt").read_text().splitlines()]
    sources += STATEMENTS + WHITE_SPACE
    snippets = []
    for source in dict.fromkeys(sources):
        result = render(env, source, variables)
        if result is not None:
            snippets.append({"template": source, **result})
    conversations = json.loads((DATA / "conversations.json").read_text())
    templates = {}
    for path in sorted((DATA / "templates").glob("*.jinja")):
        source = path.read_text()
        templates[path.name] = {name: render(env, source, {**conversations["context"], **conversation})
                                for name, conversation in conversations["conversations"].items()}
    out = {"snippets": snippets, "templates": templates}
    (DATA / "jinja_cases.json").write_text(json.dumps(out, ensure_ascii=False, indent=0) + "\n")
    print(f"{len(snippets)} snippets, {len(templates)} templates")
    return 0


if __name__ == "__main__":
    sys.exit(main())
