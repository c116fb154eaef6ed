"""Groups of commands: suggestions for a typo, a default, and nouns that come before their verbs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Complete = Callable[[click.Context, click.Parameter, str], list[str]]


class Suggesting(click.Group):
    """A group that suggests what may be meant by a word that is none of its commands."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)  # in the order of the code

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if not ctx.resilient_parsing and args[0] not in known and not args[0].startswith("-"):
            ctx.fail(f"there is no command {args[0]!r:.60}; {meant(args[0], known, ctx.command_path)}")
        return super().resolve_command(ctx, args)


class Defaulting(Suggesting):
    """A group that runs its command `default` if no other is named: `accoda dead` is `accoda dead list`."""

    default = "list"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        bare = not args and not ctx.resilient_parsing
        if bare or (args and args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        own = super().shell_complete(ctx, incomplete)
        return own + self.commands[self.default].shell_complete(ctx, incomplete) if incomplete.startswith("-") else own


class Verb(click.Command):
    """A command of a `Nouns` group. Its first argument is the noun, which comes before the verb."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        pieces = [piece for parameter in self.get_params(ctx)[1:] for piece in parameter.get_usage_pieces(ctx)]
        return [*pieces, self.options_metavar or ""]


class Nouns(Suggesting):
    """Nouns with verbs: `accoda job 17 retry`. Without a verb it is `show`; without a noun `list`, if there is one.

    Every option belongs to a verb and may stand anywhere. The verbs are ordinary commands whose first argument is the
    noun: the words are put into their order before click sees them.
    """

    command_class = Verb

    def __init__(self, *args: Any, noun: str = "ID", complete: Complete | None = None, **given: Any) -> None:
        super().__init__(*args, **given)
        self.noun = noun
        self.complete = complete

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [f"[{self.noun}]" if "list" in self.commands else self.noun, "[VERB]", "[OPTIONS]"]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] in ctx.help_option_names:
            return super().parse_args(ctx, args)
        noun, verb, rest = self.sort(args)
        ctx.meta["accoda.noun"] = noun
        ctx.meta["accoda.words"] = args
        if ctx.resilient_parsing and verb is None:
            return super().parse_args(ctx, [])
        if noun is None:
            if "list" not in self.commands:
                ctx.fail(f"which one? Write {ctx.command_path} {self.noun}")
            return super().parse_args(ctx, ["list", *rest])
        return super().parse_args(ctx, [verb or "show", noun, *rest])

    def sort(self, args: Sequence[str]) -> tuple[str | None, str | None, list[str]]:
        """The noun, the verb, and the other words.

        The first word that is neither an option nor the value of one is the noun, the second the verb.
        """
        valued = {
            name
            for command in self.commands.values()
            for option in command.params
            if isinstance(option, click.Option) and not option.is_flag
            for name in option.opts
        }
        words = [i for i, arg in enumerate(args) if not arg.startswith("-") and (i == 0 or args[i - 1] not in valued)]
        noun = args[words[0]] if words else None
        if noun in self.commands and len(words) == 1 and set(args) & {"-h", "--help"}:
            noun, words = self.noun, [-1, *words]  # `accoda job retry --help`: of any job
        verb = args[words[1]] if len(words) > 1 else None
        return noun, verb, [arg for i, arg in enumerate(args) if i not in words[:2]]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = [name for name in self.commands if name != "list"]
        if args[0] not in self.commands and not ctx.resilient_parsing:
            path, noun = ctx.command_path, ctx.meta.get("accoda.noun")
            advice = f"write {path} {args[0]:.60} {noun}" if noun in known else meant(args[0], known, path)
            ctx.fail(f"there is no verb {args[0]!r:.60}; {advice}")
        name, command, rest = super().resolve_command(ctx, args)
        noun = ctx.meta.get("accoda.noun")
        shown = " ".join(word for word in (noun, name) if word and name not in ("list", "show")) or noun or name
        return shown, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        names = {"list": "(nothing)", "show": self.noun}
        rows = [
            (names.get(name, f"{self.noun} {name}"), command.get_short_help_str(60))
            for name, command in self.commands.items()
        ]
        with formatter.section("Verbs"):
            formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        if ctx.meta.get("accoda.noun") is None:
            if incomplete.startswith("-"):
                return self.commands["list" if "list" in self.commands else "show"].shell_complete(ctx, incomplete)
            nouns = self.complete(ctx, click.Argument(["noun"]), incomplete) if self.complete else []
            return [CompletionItem(noun) for noun in nouns]
        verbs = [name for name in self.commands if name.startswith(incomplete) and name != "list"]
        options = self.commands["show"].shell_complete(ctx, incomplete) if incomplete.startswith("-") else []
        return [CompletionItem(name, help=self.commands[name].get_short_help_str()) for name in verbs] + options


def meant(word: str, known: Sequence[str], path: str) -> str:
    """What to do about an unknown word.

    >>> meant("quues", ["jobs", "queues"], "accoda"), meant("x", ["jobs"], "accoda")
    ('did you mean queues?', 'see accoda --help')
    """
    return near(word, known) or f"see {path} --help"


def near(word: str, known: Sequence[str]) -> str:
    """The known words that are like it, as a question; empty if there are none."""
    from difflib import get_close_matches

    words = get_close_matches(word, known, 3, 0.6)
    return f"did you mean {' or '.join(words)}?" if words else ""
