#!/usr/bin/perl
# A worker: replies to requests on jobs/upper with the text in capitals, counts them in its heartbeat, and stops when
# somebody sends it "stop".
#
#     perl -Ilib examples/worker.pl &
#     bccn req jobs/upper 'hello there'
use strict;
use warnings;

use IO::Select;

use Net::Bccn;

my ($done, $reported, $stopped) = (0, 0, 0);
my $bus = Net::Bccn->new(path => $ARGV[0], format => 'full', wait => 10); # the format full shows who asks

$bus->serve('jobs/upper', sub {
    my ($request) = @_;
    $done++;
    return uc $request->{payload};
});
$bus->listen(sub {
    my ($message) = @_;
    $stopped = 1 if $message->{payload} eq 'stop';
});
$bus->heartbeat(5, 'ready');
$| = 1;
printf "%s is ready\n", $bus->name;

# Any loop around select, poll or epoll works; add other descriptors as needed.
my $inputs = IO::Select->new($bus->fileno);
while (!$stopped) {
    $bus->dispatch if $inputs->can_read;
    $bus->heartbeat(5, ($reported = $done) . ' done') if $reported < $done;
}
$bus->barrier; # everything has arrived
print "$done done\n";
