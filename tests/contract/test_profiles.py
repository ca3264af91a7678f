"""Row A6: profiles under their names; one that names a tool which the registry lacks is refused."""

import pytest

from callgate import NotFoundError, ToolRegistry, UsageError, tool
from callgate.profiles import Limits, Profile, ProfileStore
from callgate.store import MemoryStore, SQLStore


@tool(kind="read")
async def get_order(order_id: int) -> int:
    return order_id


@tool(kind="write")
async def refund(order_id: int) -> int:
    return order_id


@pytest.fixture(params=["memory", "sqlite"])
async def store(request, tmp_path):
    made = MemoryStore() if request.param == "memory" else SQLStore(f"sqlite:///{tmp_path / 'p.db'}")
    yield made
    await made.aclose()


FULL = Profile(
    name="support",
    model="openai:gpt-5",
    instructions="Be kind.",
    tools=("get_*", "refund"),
    policy="policy.toml",
    limits=Limits(steps=3, time_s=10, tokens=1000, cost=0.5),
    settings={"temperature": 0.1},
)


async def test_a6_a_profile_is_kept_and_read_again(store):
    profiles = ProfileStore(ToolRegistry([get_order, refund]), store=store)
    await profiles.put(FULL)
    assert await profiles.get("support") == FULL
    assert await profiles.names() == ["support"]
    await profiles.delete("support")
    with pytest.raises(NotFoundError, match="known are none"):
        await profiles.get("support")


@pytest.mark.parametrize("pattern", ["refnd", "get_x*", "REFUND"])
async def test_a6_a_tool_that_the_registry_lacks_is_refused_and_named(store, pattern):
    profiles = ProfileStore(ToolRegistry([get_order, refund]), store=store)
    with pytest.raises(UsageError, match=pattern.replace("*", r"\*")):
        await profiles.put(Profile(name="p", tools=(pattern,)))
    assert await profiles.names() == []


async def test_a6_a_tool_that_has_gone_since_is_refused_when_the_profile_is_read(store):
    await ProfileStore(ToolRegistry([get_order, refund]), store=store).put(FULL)
    with pytest.raises(UsageError, match="refund"):
        await ProfileStore(ToolRegistry([get_order]), store=store).get("support")


async def test_a6_profiles_are_read_from_the_files_of_a_folder(tmp_path):
    (tmp_path / "support.toml").write_text('instructions = "Be kind."\ntools = ["get_*"]\n[limits]\nsteps = 3\n')
    profiles = ProfileStore(ToolRegistry([get_order]), folder=tmp_path)
    profile = await profiles.get("support")
    assert (profile.name, profile.limits.steps, profile.tools) == ("support", 3, ("get_*",))
    assert await profiles.names() == ["support"]
    with pytest.raises(UsageError, match="only reads"):
        await profiles.put(profile)
    for name in ("../support", "none"):
        with pytest.raises(NotFoundError):
            await profiles.get(name)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("instruction = 'x'", "did you mean 'instructions'"),
        ("[limits]\nstep = 3", "did you mean 'steps'"),
        ("[limits]\nsteps = 0", "steps"),
        ("tools = 'get_order'", "list of names"),
        ("model = 5", "model"),
        ("settings = 5", "settings"),
        ("limits = 5", "limits"),
        ("nonsense", "no TOML"),
    ],
)
async def test_a6_a_file_that_cannot_be_is_refused_with_what_is_wrong(tmp_path, text, problem):
    (tmp_path / "p.toml").write_text(text)
    with pytest.raises(UsageError, match=problem):
        await ProfileStore(ToolRegistry([get_order]), folder=tmp_path).get("p")


def test_a6_a_profile_chooses_among_tools():
    tools = ToolRegistry([get_order, refund]).list()
    assert [each.name for each in Profile(name="p", tools=("get_*",)).chosen(tools)] == ["get_order"]
    assert Profile(name="p").chosen(tools) == tools
