# For TAP tests that hold sessions at named places of the library (test points).
package LeasePoints;

use strict;
use warnings;

use Exporter 'import';
use LeaseTest;
use PostgreSQL::Test::Utils;

our @EXPORT = qw(points_cluster hold_point free_point stand_at at_point);

# A server with the library that has test points.
sub points_cluster
{
	my ($name, %option) = @_;

	die "PG_LEASE_TEST_LIBDIR must name the folder of the library with test points (make installcheck sets it)\n"
	  unless -e ($ENV{PG_LEASE_TEST_LIBDIR} // '') . '/pg_lease.so';
	$option{conf} = "dynamic_library_path = '$ENV{PG_LEASE_TEST_LIBDIR}:\$libdir'\n" . ($option{conf} // '');
	return lease_cluster($name, %option);
}

# From now on, sessions that stand_at() the point stop there.
sub hold_point { my ($holder, $point) = @_; $holder->value("SELECT pg_advisory_lock(125534, hashtext('$point'))"); return; }
sub free_point { my ($holder, $point) = @_; $holder->value("SELECT pg_advisory_unlock(125534, hashtext('$point'))"); return; }

sub stand_at { my ($session, @points) = @_; $session->value(sprintf q{SET pg_lease.test_points = '%s'}, join ',', @points); return; }

# Until the session has come to a point that is held.
sub at_point
{
	my ($node, @sessions) = @_;

	foreach my $session (@sessions)
	{
		$node->poll_query_until('postgres', sprintf(q{
			SELECT wait_event_type = 'Lock' AND wait_event = 'advisory' FROM pg_stat_activity WHERE pid = %d}, $session->pid))
		  or die 'the session does not come to the point';
	}
	return;
}

1;
