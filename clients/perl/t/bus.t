# Tests what only the Perl client has, with the daemon at $BCCN_SOCKET: callbacks, poll loops, errors, and strings that
# are not bytes. The conformance suite tests the rest.
use strict;
use warnings;

use IO::Select;
use Socket qw(AF_UNIX MSG_DONTWAIT SOCK_SEQPACKET pack_sockaddr_un);
use Test::More;
use Time::HiRes qw(ualarm);

use Net::Bccn;

plan skip_all => 'BCCN_SOCKET names no daemon' if !$ENV{BCCN_SOCKET};

my @warnings;
local $SIG{__WARN__} = sub { push @warnings, @_ };

sub error_of {
    my ($code) = @_;
    return eval { $code->(); 1 } ? 'no error' : $@;
}

sub is_readable {
    my ($fd, $seconds) = @_;
    return !!IO::Select->new($fd)->can_read($seconds);
}

subtest 'errors are objects' => sub {
    my $error = error_of(sub { Net::Bccn->new(path => '/nonexistent/bus.sock') });
    isa_ok($error, 'Net::Bccn::Error');
    is($error->code, 'unavailable', 'code');
    like($error->text, qr{\Ano daemon at /nonexistent/bus\.sock: \S.*\z}, 'text');
    like("$error", qr/ at \Q$0\E line \d+\.\n\z/, 'the line is that of the call');
    is(error_of(sub { Net::Bccn->new(adress => '/tmp') })->code, 'invalid', 'an unknown option');
    is(error_of(sub { Net::Bccn->new(format => 'lines') })->code, 'invalid', 'an unknown format');
    is(error_of(sub { Net::Bccn->new(separator => ',') })->code, 'invalid', 'an unknown separator');
    is(error_of(sub { Net::Bccn->new(tap => 1) })->code, 'invalid', 'an unknown kind of tap');
    is(error_of(sub { Net::Bccn->new(timeout => 'soon') })->code, 'invalid', 'a timeout that is no number');
    is(error_of(sub { Net::Bccn->new(queue => 'packets=1') })->code, 'invalid', 'a queue that is no hash');
    is(error_of(sub { Net::Bccn->new(queue => { packet => 1 }) })->code, 'invalid', 'nor has its keys');
    is(error_of(sub { Net::Bccn->new(on_notice => 'warn') })->code, 'invalid', 'no sub for notices');
    is(error_of(sub { Net::Bccn->new(path => '/' . 'x' x 108) })->code, 'invalid', 'a path too long for a socket');
    is(error_of(sub { Net::Bccn->new(name => 'no name') })->code, 'bad-name', 'a name that the daemon rejects');

    my $bus = Net::Bccn->new;
    is(error_of(sub { $bus->publish('a', "\x{263A}") })->code, 'invalid', 'characters are not bytes');
    is(error_of(sub { $bus->heartbeat(5, "\x{263A}") })->code, 'invalid', 'nor in a heartbeat');
    is(error_of(sub { $bus->publish("a\0b", 'c') })->code, 'invalid', 'a channel with a NUL');
    is(error_of(sub { $bus->control('no-such-key') })->code, 'unknown-key', 'a request that the daemon does not know');
    is(error_of(sub { $bus->serve('a', sub { }) })->code, 'invalid', 'serving in the format plain');
    is(error_of(sub { $bus->reply({ payload => 'no request' }, '') })->code, 'invalid', 'a reply to a message that is not a request');
    is(error_of(sub { $bus->send_datagram('MSG a') })->code, 'invalid', 'a datagram that is none');
    $bus->close for 1, 2;
    is(error_of(sub { $bus->receive })->code, 'closed', 'after close');
};

subtest 'callbacks and receive' => sub {
    my $bus = Net::Bccn->new;
    my (@both, @one);
    $bus->subscribe('cb/>', sub { push @both, $_[0]{payload} });
    $bus->subscribe('cb/*', sub { my ($message, $on) = @_; push @one, $message->{payload}; $on->publish('plain', 'seen') });
    $bus->subscribe('plain');
    $bus->publish('cb/a',   1);
    $bus->publish('cb/a/b', 2);
    is($bus->receive(30)->{payload}, 'seen', 'receive calls callbacks, and returns a message without one');
    is_deeply([ \@both, \@one ], [ [ 1, 2 ], [1] ], 'each callback gets the messages of its pattern');
    $bus->subscribe('cb/a');
    $bus->publish('cb/a', 3);
    is_deeply([ map { $_->{payload} } map { $bus->receive(30) } 1 .. 2 ], [ 3, 'seen' ], 'receive and the callbacks get it');
    $bus->unsubscribe('cb/a');
    $bus->publish('cb/a', 4);
    is($bus->receive(30)->{payload}, 'seen', 'receive no longer gets it');
    is($bus->receive(0), undef, 'no other message');

    $bus->listen(sub { die "not today\n" });
    $bus->publish_to($bus->name, 'x');
    is(error_of(sub { $bus->receive(30) }), "not today\n", 'receive dies when a callback dies');
    $bus->listen;
    $bus->publish_all('y');
    is($bus->receive(30)->{channel}, '!', 'the last call of listen counts');
};

subtest 'poll loops' => sub {
    my (@messages, @notices);
    my $bus   = Net::Bccn->new(format => 'full', on_notice => sub { push @notices, $_[0] });
    my $other = Net::Bccn->new;
    my $fd    = $bus->fileno;
    $bus->subscribe('poll/>', sub { push @messages, $_[0] });
    ok(!is_readable($fd, 0), 'nothing yet');
    $other->publish('poll/x', 'hello');
    $other->barrier;
    ok(is_readable($fd, 30), 'readable');
    $bus->barrier; # reads it
    ok(is_readable($fd, 0), 'still readable while the message waits in the bus');
    $bus->dispatch;
    is_deeply([ map { @{$_}{qw(channel payload src lost verdict)} } @messages ],
        [ 'poll/x', 'hello', $other->name, 0, 'ok' ], 'dispatch calls the callback');
    ok(!is_readable($fd, 0), 'no longer readable');
    $bus->dispatch;
    is_deeply([ scalar @messages, @notices ], [1], 'dispatch does not wait');
    $other->publish_to($bus->name, $_) for 1, 2;
    $other->barrier;
    $bus->barrier;
    $bus->dispatch;
    is_deeply([ map { @{$_}{qw(kind count)} } @notices ], [ 'unclaimed', 2 ], 'what only receive returns is dropped');
    like($notices[0]{text}, qr/, 2 times\z/, 'and its text says how often');
};

subtest 'watches' => sub {
    my (@told, @second);
    my ($bus, $other) = (Net::Bccn->new, Net::Bccn->new);
    my $fd = $bus->fileno;
    $other->subscribe('watched/x');
    is(error_of(sub { $bus->watch('watched/>') })->code, 'invalid', 'without a sub');
    is(error_of(sub { $bus->watch('!', sub { }) })->code, 'bad-pattern', 'what has no listeners');
    $bus->watch('watched/>', sub { push @told, [ @_[ 0, 1 ] ]; die "not today\n" });
    ok(is_readable($fd, 30), 'readable when there is news');
    is(error_of(sub { $bus->dispatch }), "not today\n", 'dispatch dies when the callback dies');
    is_deeply(\@told, [ [ 'watched/>', 1 ] ], 'which was told');
    $bus->watch('watched/>', sub { my ($pattern, $wanted, $on) = @_; push @second, $wanted; $on->unwatch($pattern) });
    ok(is_readable($fd, 30), 'another callback is told anew');
    $bus->dispatch;
    is_deeply([ \@second, scalar @told ], [ [1], 1 ], 'instead of the first');
    $other->unsubscribe('watched/x');
    $bus->barrier;
    $bus->dispatch;
    is(scalar @second, 1, 'no more after unwatch');
    ok(!is_readable($fd, 0), 'and nothing waits');
};

subtest 'signals do not change a timeout' => sub {
    my $bus    = Net::Bccn->new;
    my $alarms = 0;
    local $SIG{ALRM} = sub { $alarms++ };
    my $start = Net::Bccn::Connection::now();
    ualarm(20_000, 20_000);
    is($bus->receive(0.3), undef, 'timed out');
    my $waited = Net::Bccn::Connection::now() - $start;
    ualarm(0);
    ok($alarms > 0, 'after signals');
    ok($waited >= 0.3, 'and no sooner');
};

subtest 'batches' => sub {
    for my $pack (0, 1) {
        my $bus = Net::Bccn->new(pack => $pack);
        $bus->subscribe('batch/>');
        my $large = 'x' x 65_536; # more than a PACK takes
        $bus->subscribe('local/batch');
        $bus->batch(sub {
            $bus->publish('batch/x', $_) for 1, 2;
            $bus->publish('local/batch', $large);
            $bus->batch(sub { $bus->publish('batch/x', 4) });
        });
        is_deeply([ map { $bus->receive(30)->{payload} } 1 .. 4 ], [ 1, 2, $large, 4 ], 'sends all messages at its end, in order');
        like(error_of(sub { $bus->batch(sub { $bus->publish('batch/x', 5); die "halfway\n" }) }), qr/halfway/, 'dies');
        is($bus->receive(30)->{payload}, 5, 'sends what was published before');
    }
};

subtest 'requests' => sub {
    my $pid = fork // die "fork: $!\n";
    if (!$pid) {
        my $bus = Net::Bccn->new(format => 'full');
        my $held;
        $bus->serve('upper', sub {
            my ($request) = @_;
            return uc $request->{payload} if $request->{payload} !~ /\Alater|silence\z/;
            $bus->reply($held, 'LATE') if $held;
            $held = $request->{payload} eq 'later' && $request;
            return;
        });
        $bus->dispatch while is_readable($bus->fileno);
        exit;
    }
    my $bus = Net::Bccn->new(timeout => 60, on_notice => sub { });
    my $reply;
    for (1 .. 600) { # the child may not serve yet
        last if eval { $reply = $bus->request('upper', "two\nlines", 0.1) };
    }
    is($reply->{payload}, "TWO\nLINES", 'the reply');
    is(error_of(sub { $bus->request('upper', 'later', 0.1) })->code, 'timeout', 'none in time');
    is(error_of(sub { $bus->request('upper', 'silence', 0.1) })->code, 'timeout', 'a late reply is none to another');
    is($bus->request('upper', 'again')->{payload}, 'AGAIN', 'the timeout of the bus is long enough');
    is(error_of(sub { $bus->request('bad channel', '', 60) })->code, 'bad-channel', 'a request that is rejected');
    my @inside;
    $bus->request_many('upper', 'one', sub { push @inside, $_[0]{payload}, $_[1]->request('upper', 'in')->{payload} }, 60, 1);
    is_deeply(\@inside, [qw(ONE IN)], 'a request while another waits for replies');
    is(error_of(sub { $bus->request_many('upper', 'x', sub { die "enough\n" }, 60) }), "enough\n", 'a callback that dies');
    is($bus->{waiting}, 0, 'nothing is left of them');

    $bus->publish('upper', $_) for 'no request', "\nnor this";
    is($bus->request('upper', 'still there')->{payload}, 'STILL THERE', 'who serves ignores other messages');
    kill TERM => $pid;
    waitpid $pid, 0;
};

subtest 'matches' => sub {
    ok(Net::Bccn->matches('a/*/c', 'a/b/c') && !Net::Bccn->matches('a/b', 'a/b/c'), 'by tokens');
    ok(Net::Bccn->matches('a.>', 'a.b', '.') && !Net::Bccn->matches('a.>', 'a.b'), 'with a separator');
};

subtest 'what the daemon says' => sub {
    my $bus = Net::Bccn->new;
    is(ref $bus->status, 'HASH', 'the status');
    ok((grep { $_->{name} eq $bus->name } $bus->clients), 'the clients');
    my @sources = $bus->sources;
    is(scalar(grep { ref ne 'HASH' } @sources), 0, 'the sources');
};

subtest 'a child of fork does not disturb its parent' => sub {
    my $bus = Net::Bccn->new;
    $bus->subscribe('fork/>');
    my $fd    = $bus->fileno;
    my $pid = fork // die "fork: $!\n";
    if (!$pid) {
        my $ok = $bus->name =~ m{/$$\z} && $bus->publish('fork/x', 'child');
        $bus->barrier;
        $bus->fileno;
        exit;
    }
    waitpid $pid, 0;
    is($?, 0, 'the child ends well');
    ok(is_readable($fd, 30), "the parent's descriptor still works");
    is($bus->receive(0)->{payload}, 'child', 'and its connection');
};

subtest 'a flood of what is no answer' => sub {
    my @notices;
    my $bus = Net::Bccn->new(on_notice => sub { push @notices, $_[0] });
    $bus->{timeout} = 0.01;
    my $flood = sub { $bus->_control('revoked', 'SUB a'); return 1 };
    no warnings 'redefine'; ## no critic (ProhibitNoWarnings)
    local *Net::Bccn::Connection::_read = $flood;
    is($bus->receive(0.01), undef, 'receive ends in time');
    is(error_of(sub { $bus->barrier })->code,         'timeout', 'and a barrier');
    is(error_of(sub { $bus->request('a', 'x') })->code, 'timeout', 'and a request');
    @notices = ();
    $flood->() for 1 .. 2000;
    $bus->dispatch;
    ok(@notices < 2000, 'notices that wait are bounded');
};

# A bus that has lost its connection, and whose next one goes to an address where nobody answers.
sub cut_off {
    my ($path, $timeout) = @_;
    my $bus = Net::Bccn->new(on_notice => sub { });
    @{$bus}{qw(path timeout)} = ($path, $timeout);
    $bus->_let_go;
    return $bus;
}

# Answers what has come to a socket as a daemon would, as far as it must. Returns the packets.
sub answer_all {
    my ($socket) = @_;
    my @packets;
    while (defined recv $socket, my $packet, 1 << 17, MSG_DONTWAIT) {
        push @packets, $packet;
        send $socket, "CMSG pong\0$1", 0 if $packet =~ /\ACMSG ping\0(.*)/;
    }
    return @packets;
}

subtest 'a deadline holds while the bus connects' => sub {
    my $path = "\0bccn/bus.t/$$";
    socket my $listener, AF_UNIX, SOCK_SEQPACKET, 0 or die "no socket: $!\n";
    bind $listener, pack_sockaddr_un($path) and listen $listener, 8 or die "no listener: $!\n";
    my $bus = cut_off($path, 60);
    $bus->{subscriptions} = [ map { { pattern => "deadline/$_", regex => qr/x/ } } 1 .. 1000 ]; # more than there is room for
    is($bus->receive($_), undef, "receive returns after $_ s") for 0, 0.01;
    $bus->dispatch;
    ok($bus->{socket} && !$bus->{ready}, 'there is a connection, which nobody greets');
    $bus->{timeout} = 0.01; # of calls, and not of the greeting that has begun
    is(error_of(sub { $bus->publish('a', 'x') })->code, 'unavailable', 'a publish fails in time');
    is(error_of(sub { $bus->subscribe('a') })->code, 'unavailable', 'and a subscribe');
    is(error_of(sub { $bus->unsubscribe("deadline/$_") })->code, 'unavailable', "an unsubscribe of number $_") for 1, 1000;
    my $fd = $bus->fileno;
    accept my $daemon, $listener or die "nobody connects: $!\n";
    my @packets;
    while (!$bus->{ready} || @{ $bus->{withdrawn} }) { # each turn of a loop goes on
        push @packets, answer_all($daemon);
        is_readable($fd, 30) or last;
        $bus->dispatch;
    }
    my @said = grep {/SUB /} @packets, answer_all($daemon);
    is_deeply(\@said, [ (map {"SUB deadline/$_"} 1 .. 999), 'UNSUB deadline/1' ], 'each is said once, and one is taken back');
};

subtest 'a call waits for the next connection up to its timeout' => sub {
    my $bus = cut_off('/nonexistent/bus.sock', 0.05);
    @{$bus}{qw(tried_at retry_at)} = (Net::Bccn::Connection::now(), Net::Bccn::Connection::now() + 1000);
    my $start = Net::Bccn::Connection::now();
    my $error = error_of(sub { $bus->publish('a', 'x') });
    is($error->code, 'unavailable', 'it fails');
    ok(Net::Bccn::Connection::now() - $start >= 0.05, 'after its timeout');
    like($error->text, qr{/nonexistent/}, 'and has tried once more');
    $bus->{timeout} = 1000;
    is(error_of(sub { $bus->request('a', 'x', 0.01) })->code, 'unavailable', 'a request has its own timeout');
};

subtest 'a flood of messages before an answer' => sub {
    my $bus = Net::Bccn->new;
    no warnings 'redefine'; ## no critic (ProhibitNoWarnings)
    local *Net::Bccn::Connection::_read = sub { $bus->{waiting} += 1024 * 1024; return 1 };
    is(error_of(sub { $bus->barrier })->code, 'backlog', 'is bounded');
    ok($bus->{waiting} <= 130 * 1024 * 1024, 'by what may wait');
};

subtest 'what a tap shows as rejected' => sub {
    my $bus = Net::Bccn->new;
    my @called;
    $bus->subscribe('tapped', sub { push @called, $_[0]{verdict} });
    $bus->{wanted}{tap} = 'on';
    push @{ $bus->{backlog} },
        map { { channel => 'tapped', payload => '', verdict => $_ } } qw(ok duplicate retained hmac);
    is_deeply([ map { $bus->receive(0)->{verdict} } 1, 2 ], [qw(duplicate hmac)], 'goes to the stream');
    is_deeply(\@called, [qw(ok retained)], 'and to no callback');
};

is_deeply(\@warnings, [], 'no warnings so far');

subtest 'notices' => sub {
    my @notices;
    my $bus = Net::Bccn->new(on_notice => sub { push @notices, $_[0] });
    $bus->publish('bad channel');
    my $error = error_of(sub { $bus->barrier });
    is($error->code, 'bad-channel', 'the error of the barrier');
    is_deeply([ map { @{$_}{qw(kind code count)} } @notices ], [ 'rejected', 'bad-channel', 1 ], 'the notice');
    is($notices[0]{text}, $error->text, 'both have the same text');

    @notices = ();
    $bus->publish('bad channel') for 1 .. 3;
    error_of(sub { $bus->barrier });
    is_deeply([ map { @{$_}{qw(kind code count)} } @notices ], [ 'rejected', 'bad-channel', 3 ], 'one for many');

    $bus = Net::Bccn->new;
    $bus->publish('bad channel');
    error_of(sub { $bus->barrier });
    is(scalar @warnings, 1, 'without on_notice it is a warning');
    like($warnings[0], qr/\Abccn: MSG bad channel: .*\(bad-channel\)\n\z/, 'of one line');
};

done_testing;
