"""What the connections of each user hold."""

from bccnd.mux.accounts import TOO_MANY, TOO_MANY_OF_USER, Accounts


def test_places_are_bounded_for_each_user_and_for_all() -> None:
    accounts = Accounts(3, 2)
    assert [accounts.admit(uid) for uid in (1, 1, 1, 2, 3)] == [b"", b"", TOO_MANY_OF_USER, b"", TOO_MANY]
    assert len(accounts) == 3
    accounts.give_back(1)
    assert accounts.admit(3) == b""


def test_the_heaviest_of_a_user_beyond_its_bound_is_named() -> None:
    accounts = Accounts(9, 9, bytes_each=100)
    assert accounts.weigh("other", 2, 99) is None
    assert accounts.weigh("light", 1, 30) is None
    assert accounts.weigh("heavy", 1, 70) is None
    assert accounts.weigh("light", 1, 31) == "heavy"
    assert accounts.weigh("light", 1, 30) is None
    assert accounts.weigh("light", 1, 30) is None
    assert accounts.held == 199


def test_what_is_given_back_leaves_nothing() -> None:
    accounts = Accounts(9, 9, bytes_each=100)
    accounts.admit(1)
    accounts.weigh("one", 1, 60)
    accounts.weigh("one", 1, 0)
    accounts.give_back(1)
    assert (accounts.held, len(accounts)) == (0, 0)
    assert not accounts._places
    assert not accounts._bytes
    assert not accounts._weights
