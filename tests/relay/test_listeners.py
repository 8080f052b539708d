"""Who has gained a pattern since when."""

from tests.relay.host import Host


def test_who_gained_is_found_the_latest_first():
    host = Host()
    first, second = host.session(b"a"), host.session(b"b")
    listeners = host.router.listeners
    version = listeners.version
    assert listeners.since(-1) == [second, first]
    assert listeners.since(version) == []
    host.router.subscribe(first, b"c")
    host.router.subscribe(first, b"c")  # once more is no gain
    assert listeners.since(version) == [first]
    assert listeners.version == version + 1
    assert listeners.since(-1) == [first, second]


def test_each_change_is_told():
    host = Host()
    session = host.session()
    changes: list[int] = []
    listeners = host.router.listeners
    listeners.on_change = lambda: changes.append(listeners.version)
    host.router.subscribe(session, b"a")
    host.router.service_changed(session)
    host.router.unsubscribe(session, b"a")
    host.router.service_changed(session)  # which holds nothing now
    host.router.subscribe(session, b"b")
    host.router.leave(session)
    assert changes == [1, 2, 3, 4, 5]
    assert listeners.since(-1) == []
