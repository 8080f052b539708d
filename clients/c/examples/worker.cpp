// A worker: replies to requests on jobs/upper with the text in capitals, counts them in its heartbeat, and stops when
// somebody sends it "stop".
//
//     c++ -std=c++17 -o worker worker.cpp $(pkg-config --cflags --libs bccn)
//     ./worker &
//     bccn req jobs/upper 'hello there'
#include "bccn.hpp"

#include <cctype>
#include <iostream>
#include <poll.h>

using namespace std::chrono_literals;

static int work(const char *path)
{
    bccn::Options options;
    options.format = bccn::Format::full; // it shows who asks
    options.wait = 10s;
    bccn::Bus bus(path, options);

    unsigned long done = 0;
    bool stopped = false;
    bus.serve("jobs/upper", [&](const bccn::Message &request) {
        std::string text = request.question().value();
        for (char &letter : text)
            letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
        bus.reply(request, text);
        bus.heartbeat(5s, std::to_string(++done) + " done");
        return std::nullopt; // the reply is on its way; a text here would be another
    });
    bus.listen([&](const bccn::Message &message) { stopped |= message.payload == "stop"; });
    bus.heartbeat(5s, "ready");
    std::cout << bus.name() << " is ready" << std::endl;

    // Any loop around poll, select or epoll works; add other descriptors as needed.
    pollfd ready = {bus.fileno(), POLLIN, 0};
    while (!stopped) {
        poll(&ready, 1, -1);
        bus.dispatch();
    }
    bus.barrier(); // everything has arrived
    std::cout << done << " done" << std::endl;
    return 0;
}

int main(int count, char **words)
try {
    return work(count > 1 ? words[1] : "");
} catch (const bccn::Error &error) {
    std::cerr << "worker: " << error.what() << '\n';
    return 1;
}
