# A server's wall clock, shifted by a small library of the tests' own (clockshim.c). Linux only: how a library is put between, and
# which clocks there are, is a system's own.
package ShiftedClock;

use strict;
use warnings;

use File::Basename;
use PostgreSQL::Test::Utils;

sub new
{
	my ($class) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir();

	PostgreSQL::Test::Utils::system_or_bail('cc', '-O', '-shared', '-fPIC', '-o', "$dir/clockshim.so", dirname(__FILE__) . '/clockshim.c', '-ldl');
	return bless({ dir => $dir }, $class)->set(0);
}

# From now on, for every process that was started under it.
sub set
{
	my ($self, $hours) = @_;
	my $shift = "$self->{dir}/shift";

	# in place: the server has it mapped
	open my $file, (-e $shift ? '+<:raw' : '>:raw'), $shift or die $!;
	syswrite $file, pack('q', $hours * 3600 * 1e9) or die $!;
	close $file;
	return $self;
}

# Start, stop or restart a node under it.
sub run
{
	my ($self, $node, $action) = @_;
	local $ENV{CLOCKSHIM_FILE} = "$self->{dir}/shift";
	local $ENV{LD_PRELOAD} = "$self->{dir}/clockshim.so";

	return $node->$action;
}

1;
