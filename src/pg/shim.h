/*
 * What the Rust side calls in C.
 *
 * Here is what is a macro or an inline function in PostgreSQL's headers, what differs between its versions, and the
 * steps that make several calls which can raise an error, so that the boundary is crossed once for all of them.
 * Nothing here knows what a lease is.
 *
 * "raises" in a comment: only through pg::guard::call.  Everything else cannot raise.
 */
#ifndef PG_LEASE_SHIM_H
#define PG_LEASE_SHIM_H

#include "postgres.h"

#include "access/relscan.h"
#include "access/xact.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/condition_variable.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/guc.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

/* ---- what layout.rs compares with ---- */

typedef enum PglLayout
{
	PGL_SIZE_CONDITION_VARIABLE = sizeof(ConditionVariable),
	PGL_ALIGN_CONDITION_VARIABLE = __alignof__(ConditionVariable),
	PGL_SIZE_LWLOCK_PADDED = sizeof(LWLockPadded),
	PGL_SIZE_FINFO_RECORD = sizeof(Pg_finfo_record),
	PGL_SIZE_DATUM = sizeof(Datum),
	PGL_SIZE_NULLABLE_DATUM = sizeof(NullableDatum),
	PGL_OFFSET_DATUM_VALUE = offsetof(NullableDatum, value),
	PGL_OFFSET_DATUM_ISNULL = offsetof(NullableDatum, isnull),
	PGL_OFFSET_CALL_ISNULL = offsetof(FunctionCallInfoBaseData, isnull),
	PGL_OFFSET_CALL_NARGS = offsetof(FunctionCallInfoBaseData, nargs),
	PGL_OFFSET_CALL_ARGS = offsetof(FunctionCallInfoBaseData, args)
} PglLayout;

typedef enum PglNumbers
{
	PGL_IS_ERROR = ERROR,
	PGL_IS_WARNING = WARNING,
	PGL_IS_LOG = LOG,
	PGL_IS_LW_EXCLUSIVE = LW_EXCLUSIVE,
	PGL_IS_LW_SHARED = LW_SHARED,
	PGL_IS_COMMIT = XACT_EVENT_COMMIT,
	PGL_IS_ABORT = XACT_EVENT_ABORT,
	PGL_IS_PRE_COMMIT = XACT_EVENT_PRE_COMMIT,
	PGL_IS_PRE_PREPARE = XACT_EVENT_PRE_PREPARE,
	PGL_IS_COMMIT_SUB = SUBXACT_EVENT_COMMIT_SUB,
	PGL_IS_ABORT_SUB = SUBXACT_EVENT_ABORT_SUB,
	PGL_IS_POSTMASTER = PGC_POSTMASTER,
	PGL_IS_SIGHUP = PGC_SIGHUP,
	PGL_IS_USERSET = PGC_USERSET
} PglNumbers;

/* ---- errors ---- */

typedef void (*PglThunk) (void *);

/* Runs fn(arg).  False: an ERROR came up; it is left, whole, on elog's stack. */
extern bool pgl_try(PglThunk fn, void *arg);
/* Goes on with the error that pgl_try left.  Does not return. */
extern void pgl_rethrow(void);

typedef struct PglText
{
	const char *data;			/* NULL: absent; not terminated */
	int32		len;
} PglText;

typedef struct PglReport
{
	const char *sqlstate;		/* five characters */
	PglText		message;
	PglText		detail;
	PglText		detail_log;
	PglText		hint;
} PglReport;

/* Raises when level >= ERROR, and when out of memory */
extern void pgl_report(int level, const PglReport *report);
/* Below ERROR, where nothing may be raised: what goes wrong with it is forgotten */
extern void pgl_report_quietly(int level, const PglReport *report);

/* ---- the module ---- */

extern const void *pgl_magic(void);

/* ---- values ---- */

typedef enum PglKind
{
	PGL_NULL,
	PGL_BOOL,
	PGL_INT4,
	PGL_INT8,
	PGL_TIMESTAMPTZ,
	PGL_CHAR,
	PGL_INTERVAL,
	PGL_TEXT,					/* data and len without header */
	PGL_VARLENA					/* data and len with header */
} PglKind;

typedef struct PglValue
{
	int32		kind;			/* PglKind */
	int32		len;			/* of data; PGL_INTERVAL: months */
	int32		days;
	int64		number;			/* PGL_INTERVAL: microseconds */
	const char *data;
} PglValue;

/* The bytes of a text that needs no detoasting; false: it does */
extern bool pgl_text_in_place(Datum datum, PglText *text);
/* raises */
extern void pgl_text_detoast(Datum datum, PglText *text);
extern void pgl_interval(Datum datum, PglValue *value);
/* The whole varlena and the length of its output as text; false: it is stored in more than that many bytes.  Raises */
extern bool pgl_jsonb(Datum datum, int32 stored_max, PglText *varlena, int32 *text_len);

/* raises */
extern Datum pgl_datum(const PglValue *value);
extern Datum pgl_row_datum(FunctionCallInfo fcinfo, const PglValue *values, int32 count);
extern void pgl_rows_begin(FunctionCallInfo fcinfo);
extern void pgl_rows_push(FunctionCallInfo fcinfo, const PglValue *values, int32 count);

/* ---- triggers ---- */

typedef enum PglEvent
{
	PGL_INSERT,
	PGL_UPDATE,
	PGL_DELETE,
	PGL_TRUNCATE
} PglEvent;

typedef struct PglTrigger
{
	struct TriggerData *data;
	int32		event;			/* PglEvent */
	bool		before_row;
	int32		arguments;
	const char *relation;		/* its name */
} PglTrigger;

typedef struct PglColumn
{
	int32		number;			/* 0: there is none of that name */
	int32		kind;			/* PglKind of its type, PGL_NULL: another one */
	bool		generated;
} PglColumn;

/* False: the function was not called as a trigger */
extern bool pgl_trigger(FunctionCallInfo fcinfo, PglTrigger *trigger);
extern PglText pgl_trigger_argument(const PglTrigger *trigger, int32 i);
/* raises */
extern void pgl_trigger_column(const PglTrigger *trigger, PglText name, PglColumn *column);
/* A column of the row before or after; raises */
extern void pgl_trigger_value(const PglTrigger *trigger, bool old, const PglColumn *column, PglValue *value);
/* The row to go on with: as it is, or with an int8 column set (raises) */
extern Datum pgl_trigger_row(const PglTrigger *trigger);
extern Datum pgl_trigger_row_with(const PglTrigger *trigger, const PglColumn *column, int64 value);

/* ---- tables ---- */

#define PGL_COLUMNS_MAX 32
#define PGL_INDEXES_MAX 8

typedef struct PglShape
{
	const char *schema;
	const char *name;
	const char *extension;		/* that it is part of */
	const int32 *kinds;			/* PglKind of each column */
	int32		columns;
	int32		key;			/* the column of the primary key, text COLLATE "C"; -1: no index is used */
} PglShape;

typedef struct PglTable
{
	Relation	rel;
	Relation	indexes[PGL_INDEXES_MAX];	/* the primary key first; the rest only for writing */
	int32		indexes_open;
	const PglShape *shape;
	int32		lockmode;
	struct TupleTableSlot *row; /* the row found, pinned */
	struct TupleTableSlot *new_row; /* NULL until needed, like the next */
	struct TupleTableSlot *lock_row;
	PglValue	values[PGL_COLUMNS_MAX];	/* of the row found */
} PglTable;

typedef struct PglScan
{
	struct TableScanDescData *scan;
	struct SnapshotData *visible;
} PglScan;

typedef enum PglOpen
{
	PGL_OPENED,
	PGL_MISSING,
	PGL_FOREIGN,				/* a table of that name, but not the extension's */
	PGL_MISSHAPEN
} PglOpen;

typedef enum PglView
{
	PGL_LATEST,
	PGL_INSTANT,
	PGL_TRANSACTION
} PglView;

typedef enum PglOutcome
{
	PGL_DONE,
	PGL_CHANGED,
	PGL_LOCKED
} PglOutcome;

/* All of these raise */
extern bool pgl_table_exists(const PglShape *shape);
extern int	pgl_table_open(const PglShape *shape, bool for_writing, PglTable *table);
extern void pgl_table_close(PglTable *table, bool keep_locks);
/* The row stays pinned, and its values valid, until pgl_table_let_go, a write or the next look */
extern bool pgl_table_find(PglTable *table, PglText key, int view);
extern bool pgl_table_first(PglTable *table, int view);
/* Every row that a snapshot taken now sees, one pgl_table_next each, until that returns false */
extern void pgl_table_scan(PglTable *table, PglScan *scan);
extern bool pgl_table_next(PglTable *table, PglScan *scan);
extern void pgl_table_let_go(PglTable *table);
extern int	pgl_table_insert(PglTable *table, const PglValue *values);
extern int	pgl_table_update(PglTable *table, const PglValue *values);
extern int	pgl_table_delete(PglTable *table);

/* ---- processes and transactions ---- */

typedef struct PglTx
{
	uint32		proc;
	uint32		incarnation;
	uint32		lxid;
} PglTx;

extern void pgl_tx(PglTx *tx);
extern bool pgl_tx_running(const PglTx *tx);
extern int	pgl_pid(uint32 proc);
extern uint32 pgl_my_proc(void);

/* REPEATABLE READ or SERIALIZABLE */
extern bool pgl_uses_transaction_snapshot(void);
/* As CALL says it: false where the procedure may commit */
extern bool pgl_is_atomic(FunctionCallInfo fcinfo);
/* raises */
extern void pgl_commit_and_begin(void);
extern bool pgl_synchronous_commit_off(void);
/* raises */
extern void pgl_synchronous_commit_local(void);
/* From now on statement_timeout is counted for the commit of this transaction */
extern void pgl_commit_begins(void);
/* Milliseconds, 0: over; negative: statement_timeout is off or not in force here, or PostgreSQL's own timer runs */
extern int64 pgl_statement_timeout_left(void);

/* The context that was current */
extern MemoryContext pgl_switch_to_transaction_context(void);
extern void pgl_switch_to(MemoryContext context);

/* raises */
extern void pgl_check_for_interrupts(void);
/* raises */
extern uint32 pgl_wait_event(const char *name);
extern void pgl_cancel_sleep(void);
extern LWLock *pgl_addin_shmem_init_lock(void);
extern void pgl_hold_interrupts(void);

/* In the current context; raises */
extern const char *pgl_role_name(void);
extern bool pgl_encoding_is_utf8(void);
/* Whether it is text in the database's encoding */
extern bool pgl_text_is_valid(PglText text);
/* The length of its longest beginning of whole characters that has at most so many bytes */
extern int32 pgl_text_clip(PglText text, int32 most);

/* ---- background workers ---- */

/* Only while preloading */
extern bool pgl_binary_upgrade(void);
/* raises */
extern void pgl_worker_register(const char *name, const char *function, int restart_seconds);
/* NULL: there is no free slot for a worker; raises */
extern BackgroundWorkerHandle *pgl_worker_start(PglText name, const char *type, const char *function, uint32 argument);
extern bool pgl_worker_stopped(BackgroundWorkerHandle *handle);
/* The first thing that a worker does */
extern void pgl_worker_signals(void);
/* To a database, or (0) to none; raises */
extern void pgl_worker_connect(uint32 database);
/* Sleeps until its latch is set, or for so long; true: it was asked to end; raises */
extern bool pgl_worker_sleep(int64 milliseconds, uint32 event);
/* raises */
extern void pgl_worker_begin(const char *activity);
extern void pgl_worker_commit(void);
/* Before a longer sleep: tells the statistics what was done; raises */
extern void pgl_worker_idle(void);
/* For this process, whatever the configuration says later; raises */
extern void pgl_set_option(const char *name, const char *value);

extern void pgl_wake(uint32 proc);
extern void pgl_pause(int64 microseconds);

/* In the current context; raises */
extern int	pgl_databases(Oid **oids);
/* In the current context; NULL: there is none; raises */
extern const char *pgl_database_name(uint32 database);
/* The message of the error that pgl_try left, in the current context; raises */
extern const char *pgl_pending_message(void);

/* ---- utility commands ---- */

typedef enum PglCommand
{
	PGL_NEEDS_DATABASE,			/* fails while others are connected to the database */
	PGL_CREATES_EXTENSION,
	PGL_TOUCHES_EXTENSION		/* may have dropped it, or filled its tables */
} PglCommand;

typedef void (*PglUtility) (int command, uint32 database);

/* Has it called before such commands; it must not raise */
extern void pgl_watch_utility(PglUtility callback);

#ifdef PG_LEASE_TEST_POINTS
/* raises */
extern void pgl_test_error(int32 kind);
extern void pgl_test_wait(PglText name);
extern void pgl_test_wait_quietly(PglText name);
extern void pgl_test_observe(void);
#endif

#endif
