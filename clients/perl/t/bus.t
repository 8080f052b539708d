# Tests what only the Perl client has, with the daemon at $BCCN_SOCKET: callbacks, poll loops, errors, and strings that
# are not bytes. The conformance suite tests the rest.
use strict;
use warnings;

use IO::Select;
use Test::More;
use Time::HiRes qw(ualarm);

use Bccn;

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
    my $error = error_of(sub { Bccn->new(address => '/nonexistent/bus.sock') });
    isa_ok($error, 'Bccn::Error');
    is($error->code, 'unavailable', 'code');
    like($error->text, qr{\Ano daemon at /nonexistent/bus\.sock: \S.*\z}, 'text');
    like("$error", qr/ at \Q$0\E line \d+\.\n\z/, 'the line is that of the call');
    is(error_of(sub { Bccn->new(adress => '/tmp') })->code, 'invalid', 'an unknown option');
    is(error_of(sub { Bccn->new(format => 'lines') })->code, 'invalid', 'an unknown format');
    is(error_of(sub { Bccn->new(separator => ',') })->code, 'invalid', 'an unknown separator');
    is(error_of(sub { Bccn->new(address => '/' . 'x' x 108) })->code, 'invalid', 'a path too long for a socket');
    is(error_of(sub { Bccn->new(name => 'no name') })->code, 'bad-name', 'a name that the daemon rejects');

    my $bus = Bccn->new;
    is(error_of(sub { $bus->publish('a', "\x{263A}") })->code, 'invalid', 'characters are not bytes');
    is(error_of(sub { $bus->heartbeat_start(5, "\x{263A}") })->code, 'invalid', 'nor in a heartbeat');
    is(error_of(sub { $bus->publish("a\0b", 'c') })->code, 'invalid', 'a channel with a NUL');
    is(error_of(sub { $bus->control('no-such-key') })->code, 'unknown-key', 'a request that the daemon does not know');
    is(error_of(sub { $bus->serve('a', sub { }) })->code, 'invalid', 'serving in the format plain');
    is(error_of(sub { $bus->reply({ payload => 'no request' }, '') })->code, 'invalid', 'a reply to a message that is not a request');
    $bus->close;
    is(error_of(sub { $bus->recv })->code, 'closed', 'after close');
};

subtest 'callbacks and recv' => sub {
    my $bus = Bccn->new;
    my (@both, @one);
    $bus->listen('cb/>', sub { push @both, $_[0]{payload} });
    $bus->listen('cb/*', sub { my ($message, $on) = @_; push @one, $message->{payload}; $on->publish('plain', 'seen') });
    $bus->subscribe('plain');
    $bus->publish('cb/a',   1);
    $bus->publish('cb/a/b', 2);
    is($bus->recv(5)->{payload}, 'seen', 'recv calls callbacks, and returns a message without one');
    is_deeply([ \@both, \@one ], [ [ 1, 2 ], [1] ], 'each callback gets the messages of its pattern');
    $bus->subscribe('cb/a');
    $bus->publish('cb/a', 3);
    is_deeply([ map { $_->{payload} } map { $bus->recv(5) } 1 .. 2 ], [ 3, 'seen' ], 'recv and the callbacks get it');
    $bus->unsubscribe('cb/a');
    $bus->publish('cb/a', 4);
    is($bus->recv(5)->{payload}, 'seen', 'recv no longer gets it');
    is($bus->recv(0), undef, 'no other message');

    $bus->listen('!', sub { die "not today\n" });
    $bus->send_to($bus->whoami, 'x');
    is(error_of(sub { $bus->recv(5) }), "not today\n", 'recv dies when a callback dies');
    $bus->subscribe('!');
    $bus->send_all('y');
    is($bus->recv(5)->{channel}, '!', 'the last subscription to ! counts');
};

subtest 'poll loops' => sub {
    my $bus   = Bccn->new(format => 'full');
    my $other = Bccn->new;
    my $fd    = $bus->fileno;
    $bus->subscribe('poll/>');
    ok(!is_readable($fd, 0), 'nothing yet');
    $other->publish('poll/x', 'hello');
    $other->barrier;
    ok(is_readable($fd, 5), 'readable');
    $bus->barrier; # reads it
    ok(is_readable($fd, 0), 'still readable while the message waits in the bus');
    my @messages = $bus->dispatch;
    is_deeply([ map { @{$_}{qw(channel payload src lost verdict)} } @messages ],
        [ 'poll/x', 'hello', $other->whoami, 0, 'ok' ], 'dispatch returns messages without a callback');
    ok(!is_readable($fd, 0), 'no longer readable');
    is_deeply([ $bus->dispatch ], [], 'dispatch does not wait');
};

subtest 'signals do not change a timeout' => sub {
    my $bus    = Bccn->new;
    my $alarms = 0;
    local $SIG{ALRM} = sub { $alarms++; ualarm(20_000) if $alarms < 3 };
    ualarm(20_000);
    is($bus->recv(0.3), undef, 'timed out');
    is($alarms, 3, 'after three signals');
};

subtest 'batches' => sub {
    for my $pack (0, 1) {
        my $bus = Bccn->new(pack => $pack);
        $bus->subscribe('batch/>');
        my $large = 'x' x 65_536; # more than a PACK takes
        $bus->subscribe('local/batch');
        $bus->batch(sub {
            $bus->publish('batch/x', $_) for 1, 2;
            $bus->publish('local/batch', $large);
            $bus->batch(sub { $bus->publish('batch/x', 4) });
        });
        is_deeply([ map { $bus->recv(5)->{payload} } 1 .. 4 ], [ 1, 2, $large, 4 ], 'sends all messages at its end, in order');
        like(error_of(sub { $bus->batch(sub { $bus->publish('batch/x', 5); die "halfway\n" }) }), qr/halfway/, 'dies');
        is($bus->recv(5)->{payload}, 5, 'sends what was published before');
    }
};

subtest 'requests' => sub {
    my $pid = fork // die "fork: $!\n";
    if (!$pid) {
        my $bus = Bccn->new(format => 'full');
        $bus->serve('upper', sub { return $_[0] eq 'silence' ? undef : uc $_[0] });
        $bus->dispatch while is_readable($bus->fileno);
        exit;
    }
    my $bus = Bccn->new(on_notice => sub { });
    my $answer;
    for (1 .. 100) { # the child may not serve yet
        last if $answer = $bus->request('upper', "two\nlines", 0.1);
    }
    is($answer->{payload}, "TWO\nLINES", 'the answer');
    is($bus->request('upper', 'silence', 0.1), undef, 'none in time');
    is($bus->request('upper', 'again', 5)->{payload}, 'AGAIN', 'a late answer to another request does not count');
    is($bus->next_answer(0), undef, 'nobody else answered');
    like(error_of(sub { $bus->request('bad channel', '', 5) })->code, qr/bad-channel/, 'a request that is rejected');
    kill TERM => $pid;
    waitpid $pid, 0;
};

subtest 'a child of fork does not disturb its parent' => sub {
    my $bus = Bccn->new;
    $bus->subscribe('fork/>');
    my $fd    = $bus->fileno;
    my $pid = fork // die "fork: $!\n";
    if (!$pid) {
        my $ok = $bus->whoami =~ m{/$$\z} && $bus->publish('fork/x', 'child');
        $bus->barrier;
        $bus->fileno;
        exit;
    }
    waitpid $pid, 0;
    is($?, 0, 'the child ends well');
    ok(is_readable($fd, 5), "the parent's descriptor still works");
    is_deeply([ map { $_->{payload} } $bus->dispatch ], ['child'], 'and its connection');
};

is_deeply(\@warnings, [], 'no warnings so far');

subtest 'notices' => sub {
    my @notices;
    my $bus = Bccn->new(on_notice => sub { push @notices, $_[0] });
    $bus->publish('bad channel');
    my $error = error_of(sub { $bus->barrier });
    is($error->code, 'bad-channel', 'the error of the barrier');
    is_deeply([ map { @{$_}{qw(kind code count)} } @notices ], [ 'rejected', 'bad-channel', 1 ], 'the notice');
    is($notices[0]{text}, $error->text, 'both have the same text');

    $bus = Bccn->new;
    $bus->publish('bad channel');
    error_of(sub { $bus->barrier });
    is(scalar @warnings, 1, 'without on_notice it is a warning');
    like($warnings[0], qr/\Abccn: MSG bad channel: .*\(bad-channel\)\n\z/, 'of one line');
};

done_testing;
