// Tests the C++ header with the daemon whose address is the argument. Without an argument it is only compiled.
#include "../bccn.hpp"

#include <iostream>

#undef NDEBUG
#include <cassert>

using namespace std::chrono_literals;
using bccn::Code;

// The most that anything here takes.
constexpr auto soon = 20s;

namespace {

// What the callback of an exception throws.
struct Thrown {
    int number;
};

template <class Function> Code code_of(Function &&function)
{
    try {
        function();
    } catch (const bccn::Error &error) {
        assert(*error.what());
        return error.code();
    }
    return Code::ok;
}

template <class Function> int thrown_by(Function &&function)
{
    try {
        function();
    } catch (const Thrown &thrown) {
        return thrown.number;
    }
    return 0;
}

bccn::Options patient()
{
    bccn::Options options;
    options.timeout = soon;
    return options;
}

bccn::Options full()
{
    bccn::Options options = patient();
    options.format = bccn::Format::full;
    options.pack = true;
    return options;
}

void test_messages_are_owned(const std::string &address)
{
    bccn::Bus bus(address, full());
    bus.subscribe("cpp/x");
    const auto before = std::chrono::system_clock::now();
    bus.batch([&] {
        bus.publish("cpp/x", std::string_view("a\0b", 3));
        bus.publish("cpp/x", "second");
    });
    const auto first = bus.receive(soon);
    bccn::Message kept = *first, second;
    assert(bus.receive(second, soon) && !bus.receive(second, 0s));
    int seen = 0;
    bus.subscribe_view("cpp/view", [&](const bccn::MessageView &view) {
        const bccn::Message copy(view);
        seen += copy.payload == view.payload && copy.src == view.src && view.verdict == "ok" && copy.seq > kept.seq;
    });
    bus.subscribe("cpp/view");
    bus.publish("cpp/view", "3");
    assert(bus.receive_view(soon)->payload == "3" && seen == 1 && !bus.receive_view(0s));
    const std::string name = bus.name();
    bus.close();
    bus.close();
    assert(kept.channel == "cpp/x" && kept.payload == std::string("a\0b", 3) && kept.src == name);
    assert(kept.peer == "local" && kept.verdict == "ok" && kept.lost == 0 && kept.interface.empty());
    assert(kept.time > before - 1h && kept.time < before + 1h && second.seq > first->seq);
    assert(second.payload == "second" && second.datagram.find("second") != std::string::npos);
    assert(code_of([&] { bus.publish("a", "b"); }) == Code::closed && code_of([&] { bus.lost(); }) == Code::closed);
}

void test_closing_ends_this_subscription_and_frees_its_callback(const std::string &address)
{
    bccn::Bus bus(address, patient());
    const auto first = std::make_shared<int>(), second = std::make_shared<int>();
    auto one = bus.subscribe("cpp/twice", [first](const bccn::Message &) { ++*first; });
    auto two = bus.subscribe("cpp/twice", [second](const bccn::Message &) { ++*second; });
    auto stream = bus.subscribe("cpp/twice"), copy = one;
    assert(one.pattern() == "cpp/twice" && first.use_count() == 2);
    one.close();
    copy.close();
    assert(first.use_count() == 1);
    bus.publish("cpp/twice", "1");
    assert(bus.receive(soon)->payload == "1" && *first == 0 && *second == 1);
    stream.close();
    bus.publish("cpp/twice", "2");
    bus.barrier();
    assert(bus.dispatch() == 1 && *second == 2);

    // A callback that ends its own subscription is freed when it has returned.
    const auto third = std::make_shared<int>();
    bccn::Subscription own;
    own = bus.subscribe("cpp/own", [&, third](const bccn::Message &message) {
        own.close();
        assert(message.payload == "1");
        ++*third;
    });
    bus.publish("cpp/own", "1");
    bus.publish("cpp/own", "2");
    bus.barrier();
    bus.dispatch();
    assert(*third == 1 && third.use_count() == 1);

    bus.subscribe_view("cpp/view", [third](const bccn::MessageView &view) { *third += view.payload == "3"; }).close();
    assert(third.use_count() == 1);
    bus.listen([third](const bccn::Message &) { ++*third; });
    bus.publish_to(bus.name(), "directed");
    bus.barrier();
    assert(bus.dispatch() == 1 && *third == 2);
    bus.listen();
    assert(third.use_count() == 1);
    bus.publish_all("to all");
    assert(bus.receive(soon)->channel == "!");

    two.close();
    assert(second.use_count() == 1);
    const auto last = std::make_shared<int>();
    auto outlives = bus.subscribe("cpp/last", [last](const bccn::Message &) {});
    {
        const bccn::Bus gone = std::move(bus);
    }
    assert(last.use_count() == 1);
    outlives.close();
}

void test_exceptions_leave_the_call_and_lose_nothing(const std::string &address)
{
    bccn::Bus bus(address, patient());
    int calls = 0;
    bus.subscribe("cpp/throws", [&](const bccn::Message &message) {
        calls++;
        if (message.payload == "1")
            throw Thrown{1};
    });
    bus.subscribe("cpp/throws", [&](const bccn::Message &) { calls += 10; });
    bus.subscribe("cpp/throws");
    bus.publish("cpp/throws", "1");
    bus.publish("cpp/throws", "2");
    assert(thrown_by([&] { bus.receive(soon); }) == 1 && calls == 1);
    assert(bus.receive(soon)->payload == "1" && calls == 11);
    assert(bus.receive(soon)->payload == "2" && calls == 22);
    bus.publish("cpp/throws", "1");
    bus.barrier();
    assert(thrown_by([&] { bus.dispatch(); }) == 1 && calls == 23);
    assert(bus.receive(0s)->payload == "1" && calls == 33);

    // One that closes the bus.
    bus.subscribe("cpp/closes", [&](const bccn::Message &) { bus.close(); });
    bus.publish("cpp/closes", "");
    assert(code_of([&] { bus.receive(soon); }) == Code::closed && !bus.get());
}

void test_notices(const std::string &address)
{
    std::vector<bccn::Notice> notices;
    bccn::Options options = patient();
    options.on_notice = [&](const bccn::Notice &notice) {
        notices.push_back(notice);
        throw Thrown{2};
    };
    bccn::Bus bus(address, options);
    bus.publish("no channel", "");
    assert(thrown_by([&] { bus.barrier(); }) == 2 && notices.size() == 1);
    assert(notices[0].kind == bccn::NoticeKind::rejected && notices[0].code == Code::bad_channel);
    // The call that it leaves has done its work.
    int heard = 0;
    bus.publish("no channel", "");
    assert(thrown_by([&] { bus.listen([&](const bccn::Message &) { heard++; }); }) == 2);
    bus.publish_all("");
    assert(code_of([&] { bus.barrier(); }) == Code::bad_channel && bus.dispatch() == 1 && heard == 1);
    options.on_notice = nullptr;
    bccn::Bus silent(address, options);
    silent.publish("no channel", "");
    assert(code_of([&] { silent.barrier(); }) == Code::bad_channel);
    bccn::Bus loud(address, patient());
    loud.publish("no channel", "this is on stderr");
    assert(code_of([&] { loud.barrier(); }) == Code::bad_channel);
}

void test_errors_have_codes(const std::string &address)
{
    bccn::Bus bus(address, patient());
    assert(code_of([&] { bus.subscribe("ab*c"); }) == Code::bad_pattern);
    assert(code_of([&] { bus.publish(std::string("a\0b", 3), ""); }) == Code::invalid);
    assert(code_of([&] { bus.serve("cpp/x", [](const bccn::Message &) { return ""; }); }) == Code::invalid);
    bccn::Bus serves(address, full());
    assert(code_of([&] { serves.serve("cpp/x", nullptr); }) == Code::invalid);
    serves.subscribe_view("cpp/x", nullptr);
    serves.publish("cpp/x", "to the stream");
    assert(serves.receive(soon)->payload == "to the stream");
    assert(code_of([&] { bccn::Bus nowhere("/nonexistent/bus.sock"); }) == Code::unavailable);
    assert(code_of([&] { bus.control("nonsense"); }) == Code::unknown_key && bus.control("listen").empty());
    assert(bccn::word(Code::too_large) == "too-large" && bccn::version() == BCCN_VERSION);
    assert(bccn::matches("*", "a.b") && !bccn::matches("*", "a.b", '.'));
    assert(!bus.receive(0s) && bus.lost() == 0 && bus.fileno() > 2);
}

void test_requests(const std::string &address)
{
    bccn::Options options = full();
    options.name = "cpp/serves/1";
    bccn::Bus server(address, options), asker(address, patient());
    server.subscribe("cpp/ask"); // so that the request has a listener at once
    asker.subscribe("cpp/other");

    // A request is a message like others, and can be replied to later, also by a bus that has moved.
    asker.publish("cpp/other", "!");
    asker.publish("cpp/ask", "token\nquestion");
    const auto request = server.receive(soon);
    assert(request->question() == "question" && asker.receive(soon)->question() == std::nullopt);
    bccn::Bus moved = std::move(server);
    moved.reply(*request, "later");
    asker.listen();
    const auto reply = asker.receive(std::chrono::milliseconds(1LL << 32)); // is not a wait of 0 ms
    assert(reply->payload == "token\nlater");

    int came = 0;
    assert(code_of([&] { asker.request("cpp/nobody", "?", soon); }) == Code::nobody);
    assert(code_of([&] { asker.request("cpp/ask", "?", 1ms); }) == Code::timeout);
    assert(asker.request_many("cpp/ask", "?", [&](const bccn::Message &) { came++; }, 1ms) == 0 && came == 0);
    assert(asker.status()[0] == '{' && asker.clients()[0] == '[' && asker.sources()[0] == '[');

    // The daemon replies to pings: as many as asked for, or until the callable has enough.
    const std::string daemon = "!" + asker.name().substr(0, asker.name().find('/')) + "/bccnd";
    assert(asker.request(daemon, "ping").payload.find("pong") == 0);
    assert(asker.request_many(daemon, "ping", [&](const bccn::Message &) { came++; }, soon, 1) == 1 && came == 1);
    assert(asker.request_many(daemon, "ping", [](const bccn::Message &) { return false; }, soon) == 1);
}

void test_a_watch_is_told_and_frees_its_callback(const std::string &address)
{
    bccn::Bus bus(address, patient()), other(address, patient());
    const auto held = std::make_shared<int>();
    other.subscribe("cpp/watched");
    assert(code_of([&] { bus.watch("!", [held](const std::string &, bool) {}); }) == Code::bad_pattern);
    assert(code_of([&] { bus.watch("cpp/*", nullptr); }) == Code::invalid && held.use_count() == 1);
    bus.watch("cpp/*", [held](const std::string &, bool wanted) { throw Thrown{wanted ? 1 : 2}; });
    assert(thrown_by([&] { bus.receive(soon); }) == 1 && held.use_count() == 2);
    bus.watch("cpp/*", [&](const std::string &pattern, bool wanted) {
        bus.unwatch(pattern); // the callback lives until it returns
        throw Thrown{wanted ? 3 : 4};
    });
    assert(held.use_count() == 1 && thrown_by([&] { bus.receive(soon); }) == 3);
    bus.unwatch("cpp/*");
}

} // namespace

int main(int count, char **words)
{
    static_assert(!std::is_copy_constructible_v<bccn::Bus> && !std::is_copy_assignable_v<bccn::Bus>);
    static_assert(std::is_nothrow_move_constructible_v<bccn::Bus> && std::is_nothrow_move_assignable_v<bccn::Bus>);
    static_assert(std::is_nothrow_move_constructible_v<bccn::Message>);
    if (count < 2)
        return 0;
    test_messages_are_owned(words[1]);
    test_closing_ends_this_subscription_and_frees_its_callback(words[1]);
    test_exceptions_leave_the_call_and_lose_nothing(words[1]);
    test_notices(words[1]);
    test_errors_have_codes(words[1]);
    test_requests(words[1]);
    test_a_watch_is_told_and_frees_its_callback(words[1]);
    std::cout << "sound\n";
    return 0;
}
