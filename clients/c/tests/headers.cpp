// Tests the C++ header with the daemon whose address is the argument. Without an argument it is only compiled.
#include "../bccn.hpp"

#include <iostream>
#include <type_traits>

#undef NDEBUG
#include <cassert>

using namespace std::chrono_literals;

int main(int count, char **words)
{
    if (count < 2)
        return 0;
    bccn::Options options;
    options.full = 1;
    options.pack = 1;
    bccn::Bus bus(words[1], options), moved(words[1]);
    int called = 0;
    bus.listen("cpp/called", [&](const bccn::Message &message) { called += message.payload == "call"; });
    bus.subscribe("cpp/>");
    bus.subscribe("!");
    bus.batch([&] {
        bus.send("cpp/called", "call");
        bus.send("cpp/x", std::string_view("a\0b", 3));
    });
    auto message = bus.receive(5s);
    assert(message && message->channel == "cpp/called" && called == 1);
    message = bus.receive(5s);
    assert(message && message->payload.size() == 3 && message->src == bus.name() && message->verdict == "ok");
    moved.send_to(bus.name(), "directed");
    message = bus.receive(5s);
    assert(message && message->payload == "directed");

    bus.listen("cpp/ask", [&](const bccn::Message &request) {
        if (auto question = bccn::Bus::question(request))
            bus.reply(request, "re:" + std::string(*question));
    });
    bccn::Bus other = std::move(moved);
    try {
        other.subscribe("ab*c");
        assert(false);
    } catch (const bccn::Error &error) {
        assert(error.code() == BCCN_E_BAD_PATTERN);
    }
    try {
        bccn::Bus nowhere("/nonexistent/bus.sock");
        assert(false);
    } catch (const bccn::Error &error) {
        assert(error.code() == BCCN_E_UNAVAILABLE);
    }
    assert(!bus.receive(0s));

    // A message outlives the move of its bus, and can still be answered.
    bus.subscribe("cpp/moved");
    other.subscribe("!");
    other.send("cpp/moved", "token\n?");
    auto request = bus.receive(5s);
    bccn::Bus third = std::move(bus);
    third.reply(*request, "!");
    message = other.receive(std::chrono::milliseconds(1LL << 32)); // is not a wait of 0 ms
    assert(message && message->payload == "token\n!");

    static_assert(!std::is_copy_constructible_v<bccn::Bus> && !std::is_copy_assignable_v<bccn::Bus>);
    static_assert(std::is_nothrow_move_constructible_v<bccn::Bus> && std::is_nothrow_move_assignable_v<bccn::Bus>);
    std::cout << "sound\n";
    return 0;
}
