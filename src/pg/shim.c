/*
 * The C side of pg: what the Rust side needs of PostgreSQL and cannot have by a plain call.  That is what the headers
 * offer as macros and inline functions only, what differs between PostgreSQL's versions (no other file, on either side,
 * knows those), and whole steps of several calls that can raise, so that one PG_TRY does for all of them.
 *
 * Runs in whatever process the caller is.  Takes no lock of the extension's; relation and buffer locks are taken where
 * a table is read or written.  What may raise is said in shim.h.
 */
#include "shim.h"

#include "access/detoast.h"
#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/multixact.h"
#include "access/relscan.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/dependency.h"
#include "catalog/index.h"
#include "catalog/namespace.h"
#include "catalog/pg_am_d.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "catalog/pg_collation_d.h"
#include "catalog/pg_database.h"
#include "catalog/pg_type_d.h"
#include "commands/trigger.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "commands/extension.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "executor/tuptable.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "tcop/pquery.h"
#include "tcop/tcopprot.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/timeout.h"
#include "utils/tuplestore.h"
#include "utils/wait_event.h"
#ifdef PG_LEASE_TEST_POINTS
#include "common/hashfn.h"
#include "utils/errcodes.h"
#endif

#if PG_VERSION_NUM < 150000 || PG_VERSION_NUM >= 190000
#error "pg_lease knows PostgreSQL 15 to 18"
#endif

/* ---------------------------------------------------------------- errors */

bool
pgl_try(PglThunk fn, void *arg)
{
	MemoryContext context = CurrentMemoryContext;
	volatile bool ok = true;

	PG_TRY();
	{
		fn(arg);
	}
	PG_CATCH();
	{
		/* elog.c leaves ErrorContext current */
		MemoryContextSwitchTo(context);
		ok = false;
	}
	PG_END_TRY();
	return ok;
}

void
pgl_rethrow(void)
{
	PG_RE_THROW();
}

void
pgl_report(int level, const PglReport *report)
{
	const char *s = report->sqlstate;

	/* the precision of %.*s counts bytes */
	ereport(level,
			errcode(MAKE_SQLSTATE(s[0], s[1], s[2], s[3], s[4])),
			errmsg_internal("%.*s", (int) report->message.len, report->message.data),
			report->detail.data ? errdetail_internal("%.*s", (int) report->detail.len, report->detail.data) : 0,
			report->detail_log.data ? errdetail_log("%.*s", (int) report->detail_log.len, report->detail_log.data) : 0,
			report->hint.data ? errhint("%.*s", (int) report->hint.len, report->hint.data) : 0);
}

void
pgl_report_quietly(int level, const PglReport *report)
{
	/* errfinish zeroes the first two on its way to raising */
	uint32		holdoff = InterruptHoldoffCount;
	uint32		cancel_holdoff = QueryCancelHoldoffCount;
	MemoryContext context = CurrentMemoryContext;

	/* reporting takes interrupts when it is done */
	HOLD_INTERRUPTS();
	PG_TRY();
	{
		pgl_report(level, report);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		FlushErrorState();
	}
	PG_END_TRY();
	InterruptHoldoffCount = holdoff;
	QueryCancelHoldoffCount = cancel_holdoff;
}

/* ---------------------------------------------------------------- the module */

const void *
pgl_magic(void)
{
#if PG_VERSION_NUM >= 180000
	static const Pg_magic_struct magic = PG_MODULE_MAGIC_DATA(.name = "pg_lease", .version = PG_LEASE_VERSION);
#else
	static const Pg_magic_struct magic = PG_MODULE_MAGIC_DATA;
#endif

	return &magic;
}

/* ---------------------------------------------------------------- values */

bool
pgl_text_in_place(Datum datum, PglText *text)
{
	struct varlena *v = (struct varlena *) DatumGetPointer(datum);

	if (VARATT_IS_EXTERNAL(v) || VARATT_IS_COMPRESSED(v))
		return false;
	text->data = VARDATA_ANY(v);
	text->len = VARSIZE_ANY_EXHDR(v);
	return true;
}

void
pgl_text_detoast(Datum datum, PglText *text)
{
	struct varlena *v = PG_DETOAST_DATUM_PACKED(datum);

	text->data = VARDATA_ANY(v);
	text->len = VARSIZE_ANY_EXHDR(v);
}

void
pgl_interval(Datum datum, PglValue *value)
{
	Interval   *interval = DatumGetIntervalP(datum);

	value->kind = PGL_INTERVAL;
	value->len = interval->month;
	value->days = interval->day;
	value->number = interval->time;
	value->data = NULL;
}

bool
pgl_jsonb(Datum datum, int32 stored_max, PglText *varlena, int32 *text_len)
{
	Jsonb	   *jsonb;
	char	   *text;

	/* before it is unpacked; and JsonbToCString fails on more than 1 GB of text */
	if (toast_raw_datum_size(datum) > (Size) stored_max)
		return false;
	jsonb = DatumGetJsonbP(datum);
	text = JsonbToCString(NULL, &jsonb->root, VARSIZE(jsonb));
	*text_len = (int32) strlen(text);
	pfree(text);
	varlena->data = (const char *) jsonb;
	varlena->len = VARSIZE(jsonb);
	return true;
}

Datum
pgl_datum(const PglValue *value)
{
	switch ((PglKind) value->kind)
	{
		case PGL_NULL:
			return (Datum) 0;
		case PGL_BOOL:
			return BoolGetDatum(value->number != 0);
		case PGL_INT4:
			return Int32GetDatum((int32) value->number);
		case PGL_INT8:
			return Int64GetDatum(value->number);
		case PGL_TIMESTAMPTZ:
			return TimestampTzGetDatum(value->number);
		case PGL_CHAR:
			return CharGetDatum((char) value->number);
		case PGL_INTERVAL:
			{
				Interval   *interval = palloc(sizeof(Interval));

				interval->month = value->len;
				interval->day = value->days;
				interval->time = value->number;
				return IntervalPGetDatum(interval);
			}
		case PGL_TEXT:
			return PointerGetDatum(cstring_to_text_with_len(value->data, value->len));
		case PGL_VARLENA:
			{
				char	   *copy = palloc(value->len);

				memcpy(copy, value->data, value->len);
				return PointerGetDatum(copy);
			}
	}
	elog(ERROR, "unknown kind of value: %d", value->kind);
}

static Oid
kind_type(PglKind kind)
{
	switch (kind)
	{
		case PGL_BOOL:
			return BOOLOID;
		case PGL_INT4:
			return INT4OID;
		case PGL_INT8:
			return INT8OID;
		case PGL_TIMESTAMPTZ:
			return TIMESTAMPTZOID;
		case PGL_CHAR:
			return CHAROID;
		case PGL_INTERVAL:
			return INTERVALOID;
		case PGL_TEXT:
			return TEXTOID;
		case PGL_VARLENA:
			return JSONBOID;
		case PGL_NULL:
			break;
	}
	return InvalidOid;
}

static void
to_datums(TupleDesc desc, const PglValue *values, int32 count, Datum *datums, bool *nulls)
{
	if (desc->natts != count)
		elog(ERROR, "%d values for %d columns", count, desc->natts);
	for (int i = 0; i < count; i++)
	{
		nulls[i] = values[i].kind == PGL_NULL;
		if (!nulls[i] && TupleDescAttr(desc, i)->atttypid != kind_type(values[i].kind))
			elog(ERROR, "value of kind %d for column %d of type %u",
				 values[i].kind, i + 1, TupleDescAttr(desc, i)->atttypid);
		datums[i] = pgl_datum(&values[i]);
	}
}

/*
 * The row type of the OUT arguments of a function.  PostgreSQL builds it anew for each call, for longer than the rest
 * of the call takes; a function's arguments never change, so one look per function and process is enough.
 */
static TupleDesc
row_type(FunctionCallInfo fcinfo)
{
	static struct
	{
		Oid			function;
		TupleDesc	desc;
	}			known[32];
	Oid			function = fcinfo->flinfo->fn_oid;
	TupleDesc	desc;
	int			i;

	for (i = 0; i < lengthof(known) && known[i].desc != NULL; i++)
		if (known[i].function == function)
			return known[i].desc;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		ereport(ERROR,
				errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				errmsg("function returning record called in context that cannot accept type record"));
	/* registered in the process's own table of row types, which keeps a copy with this number for ever */
	desc = BlessTupleDesc(desc);
	if (i < lengthof(known))
	{
		MemoryContext context = MemoryContextSwitchTo(TopMemoryContext);
		TupleDesc	copy = CreateTupleDescCopy(desc);

		MemoryContextSwitchTo(context);
		known[i].function = function;
		known[i].desc = copy;
		desc = copy;
	}
	return desc;
}

Datum
pgl_row_datum(FunctionCallInfo fcinfo, const PglValue *values, int32 count)
{
	TupleDesc	desc = row_type(fcinfo);
	Datum		datums[PGL_COLUMNS_MAX];
	bool		nulls[PGL_COLUMNS_MAX];

	if (count > PGL_COLUMNS_MAX)
		elog(ERROR, "too many columns: %d", count);
	to_datums(desc, values, count, datums, nulls);
	return HeapTupleGetDatum(heap_form_tuple(desc, datums, nulls));
}

void
pgl_rows_begin(FunctionCallInfo fcinfo)
{
	InitMaterializedSRF(fcinfo, 0);
}

void
pgl_rows_push(FunctionCallInfo fcinfo, const PglValue *values, int32 count)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	Datum		datums[PGL_COLUMNS_MAX];
	bool		nulls[PGL_COLUMNS_MAX];

	if (count > PGL_COLUMNS_MAX)
		elog(ERROR, "too many columns: %d", count);
	to_datums(result->setDesc, values, count, datums, nulls);
	tuplestore_putvalues(result->setResult, result->setDesc, datums, nulls);
}

/* ---------------------------------------------------------------- triggers */

bool
pgl_trigger(FunctionCallInfo fcinfo, PglTrigger *trigger)
{
	TriggerData *data;

	if (!CALLED_AS_TRIGGER(fcinfo))
		return false;
	data = (TriggerData *) fcinfo->context;
	trigger->data = data;
	trigger->event = TRIGGER_FIRED_BY_INSERT(data->tg_event) ? PGL_INSERT :
		TRIGGER_FIRED_BY_UPDATE(data->tg_event) ? PGL_UPDATE :
		TRIGGER_FIRED_BY_DELETE(data->tg_event) ? PGL_DELETE : PGL_TRUNCATE;
	trigger->before_row = TRIGGER_FIRED_BEFORE(data->tg_event) && TRIGGER_FIRED_FOR_ROW(data->tg_event);
	trigger->arguments = data->tg_trigger->tgnargs;
	trigger->relation = RelationGetRelationName(data->tg_relation);
	return true;
}

PglText
pgl_trigger_argument(const PglTrigger *trigger, int32 i)
{
	const char *argument = trigger->data->tg_trigger->tgargs[i];

	return (PglText) {.data = argument, .len = (int32) strlen(argument)};
}

void
pgl_trigger_column(const PglTrigger *trigger, PglText name, PglColumn *column)
{
	TupleDesc	desc = RelationGetDescr(trigger->data->tg_relation);

	*column = (PglColumn) {.number = 0, .kind = PGL_NULL};
	if (name.len >= NAMEDATALEN)
		return;
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		Oid			type;

		if (att->attisdropped || strcmp(NameStr(att->attname), name.data) != 0)
			continue;
		type = att->atttypid;
		/* the types that are asked for most need no look into the catalog */
		if (type != TEXTOID && type != INT8OID && type != VARCHAROID)
			type = getBaseType(type);
		column->number = i + 1;
		column->kind = type == TEXTOID || type == VARCHAROID ? PGL_TEXT : type == INT8OID ? PGL_INT8 : PGL_NULL;
		column->generated = att->attgenerated != '\0';
		return;
	}
}

static HeapTuple
new_tuple(const TriggerData *data)
{
	return TRIGGER_FIRED_BY_UPDATE(data->tg_event) ? data->tg_newtuple : data->tg_trigtuple;
}

void
pgl_trigger_value(const PglTrigger *trigger, bool old, const PglColumn *column, PglValue *value)
{
	const TriggerData *data = trigger->data;
	bool		isnull;
	Datum		datum = heap_getattr(old ? data->tg_trigtuple : new_tuple(data), column->number,
									 RelationGetDescr(data->tg_relation), &isnull);

	value->kind = isnull ? PGL_NULL : column->kind;
	if (isnull)
		return;
	if (column->kind == PGL_INT8)
		value->number = DatumGetInt64(datum);
	else
	{
		PglText		text;

		if (!pgl_text_in_place(datum, &text))
			pgl_text_detoast(datum, &text);
		value->data = text.data;
		value->len = text.len;
	}
}

Datum
pgl_trigger_row(const PglTrigger *trigger)
{
	return PointerGetDatum(new_tuple(trigger->data));
}

Datum
pgl_trigger_row_with(const PglTrigger *trigger, const PglColumn *column, int64 value)
{
	int			number = column->number;
	Datum		datum = Int64GetDatum(value);
	bool		isnull = false;

	return PointerGetDatum(heap_modify_tuple_by_cols(new_tuple(trigger->data),
													 RelationGetDescr(trigger->data->tg_relation),
													 1, &number, &datum, &isnull));
}

/* ---------------------------------------------------------------- tables */

static Oid
find_relation(const PglShape *shape)
{
	Oid			schema = get_namespace_oid(shape->schema, true);

	return OidIsValid(schema) ? get_relname_relid(shape->name, schema) : InvalidOid;
}

/* Whoever may create a schema can make a table of that name.  Only the extension's owner can make it a part of it. */
static bool
is_of_extension(Oid oid, const PglShape *shape)
{
	Oid			extension = getExtensionOfObject(RelationRelationId, oid);
	const char *name = OidIsValid(extension) ? get_extension_name(extension) : NULL;

	return name != NULL && strcmp(name, shape->extension) == 0;
}

bool
pgl_table_exists(const PglShape *shape)
{
	Oid			oid = find_relation(shape);

	return OidIsValid(oid) && is_of_extension(oid, shape);
}

/*
 * Where a table was found last, by the address of its name, and found to be the extension's.  The relation's own name
 * and schema are compared each time it is opened; what the schema is called is watched by a callback.  That it is the
 * extension's stays true of the relation, unless the owner takes it out by ALTER EXTENSION: then until it is forgotten.
 */
typedef struct FoundTable
{
	const char *name;
	Oid			schema;
	Oid			oid;
} FoundTable;

static FoundTable found_tables[4];

static void
forget_tables(Datum arg, int cache, uint32 hash)
{
	memset(found_tables, 0, sizeof(found_tables));
}

static FoundTable *
found_table(const char *name)
{
	static bool watching = false;

	if (!watching)
	{
		CacheRegisterSyscacheCallback(NAMESPACEOID, forget_tables, (Datum) 0);
		watching = true;
	}
	for (int i = 0; i < lengthof(found_tables); i++)
		if (found_tables[i].name == name || found_tables[i].name == NULL)
			return &found_tables[i];
	return &found_tables[0];
}

/* The locked relation of that name; NULL: there is none, or it is foreign */
static Relation
open_relation(const PglShape *shape, LOCKMODE lockmode, bool *foreign)
{
	FoundTable *found = found_table(shape->name);
	bool		known = found->name == shape->name;

	for (;;)
	{
		Oid			schema = known ? found->schema : get_namespace_oid(shape->schema, true);
		Oid			oid = known ? found->oid : OidIsValid(schema) ? get_relname_relid(shape->name, schema) : InvalidOid;
		Relation	rel;

		if (!OidIsValid(oid))
			return NULL;
		rel = try_table_open(oid, lockmode);
		/* renamed or moved while it was not locked; the schema too, if it was forgotten meanwhile */
		if (rel != NULL && rel->rd_rel->relnamespace == schema &&
			strcmp(RelationGetRelationName(rel), shape->name) == 0 &&
			(known ? found->name == shape->name : get_namespace_oid(shape->schema, true) == schema))
		{
			if (!known && !is_of_extension(oid, shape))
			{
				table_close(rel, lockmode);
				*foreign = true;
				return NULL;
			}
			if (!known)
				*found = (FoundTable) {.name = shape->name, .schema = schema, .oid = oid};
			return rel;
		}
		if (rel != NULL)
			table_close(rel, lockmode);
		else if (!known && find_relation(shape) == oid)
			return NULL;
		known = false;
		CHECK_FOR_INTERRUPTS();
	}
}

static bool
table_fits(Relation rel, const PglShape *shape)
{
	TupleDesc	desc = RelationGetDescr(rel);

	/*
	 * Without a TOAST relation no value is stored out of line: then writing needs no snapshot, and a lock on this
	 * relation covers everything.
	 */
	if (rel->rd_rel->relkind != RELKIND_RELATION ||
		rel->rd_rel->relpersistence != RELPERSISTENCE_PERMANENT ||
		rel->rd_tableam != GetHeapamTableAmRoutine() ||
		OidIsValid(rel->rd_rel->reltoastrelid) ||
		desc->natts != shape->columns)
		return false;
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (att->attisdropped || att->atttypid != kind_type(shape->kinds[i]))
			return false;
	}
	return true;
}

static Oid
primary_key(Relation rel)
{
#if PG_VERSION_NUM >= 180000
	return RelationGetPrimaryKeyIndex(rel, false);
#else
	return RelationGetPrimaryKeyIndex(rel);
#endif
}

static bool
key_index_fits(Relation index, const PglShape *shape)
{
	Form_pg_index form = index->rd_index;

	return index->rd_rel->relam == BTREE_AM_OID &&
		form->indisunique && form->indimmediate && form->indisvalid && form->indisready &&
		form->indnkeyatts == 1 && form->indkey.values[0] == shape->key + 1 &&
		index->rd_opcintype[0] == TEXTOID && index->rd_indcollation[0] == C_COLLATION_OID;
}

/* False: there is none that fits */
static bool
open_key_index(PglTable *table)
{
	for (;;)
	{
		Oid			oid = primary_key(table->rel);
		Relation	index;

		if (!OidIsValid(oid))
			return false;
		index = index_open(oid, table->lockmode);
		if (key_index_fits(index, table->shape))
		{
			table->indexes[table->indexes_open++] = index;
			return true;
		}
		/* REINDEX CONCURRENTLY may just have put another in its place */
		index_close(index, table->lockmode);
		if (primary_key(table->rel) == oid)
			return false;
	}
}

/* Every index must be kept up, also the second one that stands beside the first during REINDEX CONCURRENTLY */
static bool
open_other_indexes(PglTable *table)
{
	Oid			key_index = table->indexes_open > 0 ? RelationGetRelid(table->indexes[0]) : InvalidOid;
	List	   *indexes = RelationGetIndexList(table->rel);
	ListCell   *cell;
	bool		fits = true;

	foreach(cell, indexes)
	{
		Oid			oid = lfirst_oid(cell);
		Relation	index;

		if (oid == key_index)
			continue;
		if (table->indexes_open == PGL_INDEXES_MAX)
		{
			fits = false;
			break;
		}
		index = index_open(oid, table->lockmode);
		table->indexes[table->indexes_open++] = index;
		if (RelationGetIndexExpressions(index) != NIL || RelationGetIndexPredicate(index) != NIL ||
			index->rd_index->indisexclusion)
			fits = false;
	}
	list_free(indexes);
	return fits;
}

static int
open_table(const PglShape *shape, bool for_writing, PglTable *table)
{
	bool		fits;
	bool		foreign = false;

	memset(table, 0, sizeof(PglTable));
	table->shape = shape;
	table->lockmode = for_writing ? RowExclusiveLock : AccessShareLock;
	table->rel = open_relation(shape, table->lockmode, &foreign);
	if (table->rel == NULL)
		return foreign ? PGL_FOREIGN : PGL_MISSING;

	fits = table_fits(table->rel, shape) &&
		(shape->key < 0 || open_key_index(table)) &&
		(!for_writing || open_other_indexes(table));
	if (!fits)
	{
		/* the error to come gives the locks back */
		pgl_table_close(table, true);
		return PGL_MISSHAPEN;
	}
	table->row = table_slot_create(table->rel, NULL);
	return PGL_OPENED;
}

/*
 * PostgreSQL puts statement_timeout away before a commit, which may have to wait for a lock here: its timer runs again
 * meanwhile, so that such a wait ends like any other.
 */
int
pgl_table_open(const PglShape *shape, bool for_writing, PglTable *table)
{
	int64		left = pgl_statement_timeout_left();
	volatile int opened;

	if (left < 0)
		return open_table(shape, for_writing, table);
	enable_timeout_after(STATEMENT_TIMEOUT, (int) Max(left, 1));
	PG_TRY();
	{
		opened = open_table(shape, for_writing, table);
	}
	PG_FINALLY();
	{
		disable_timeout(STATEMENT_TIMEOUT, true);
	}
	PG_END_TRY();
	/* it may just have gone off, and must not be taken for somebody's cancel later */
	CHECK_FOR_INTERRUPTS();
	return opened;
}

void
pgl_table_close(PglTable *table, bool keep_locks)
{
	LOCKMODE	lockmode = keep_locks ? NoLock : table->lockmode;

	if (table->row != NULL)
		ExecDropSingleTupleTableSlot(table->row);
	if (table->new_row != NULL)
		ExecDropSingleTupleTableSlot(table->new_row);
	if (table->lock_row != NULL)
		ExecDropSingleTupleTableSlot(table->lock_row);
	while (table->indexes_open > 0)
		index_close(table->indexes[--table->indexes_open], lockmode);
	table_close(table->rel, lockmode);
}

/* The pinned row's columns, valid as long as the pin */
static void
read_row(PglTable *table)
{
	TupleTableSlot *slot = table->row;

	slot_getallattrs(slot);
	for (int i = 0; i < table->shape->columns; i++)
	{
		PglValue   *value = &table->values[i];
		Datum		datum = slot->tts_values[i];

		value->kind = slot->tts_isnull[i] ? PGL_NULL : table->shape->kinds[i];
		switch ((PglKind) value->kind)
		{
			case PGL_NULL:
				break;
			case PGL_BOOL:
				value->number = DatumGetBool(datum);
				break;
			case PGL_INT4:
				value->number = DatumGetInt32(datum);
				break;
			case PGL_INT8:
				value->number = DatumGetInt64(datum);
				break;
			case PGL_TIMESTAMPTZ:
				value->number = DatumGetTimestampTz(datum);
				break;
			case PGL_CHAR:
				value->number = (uint8) DatumGetChar(datum);
				break;
			case PGL_INTERVAL:
				pgl_interval(datum, value);
				break;
			case PGL_TEXT:
				{
					PglText		text;

					/* INSERT ... SELECT by hand can bring in a compressed value */
					if (!pgl_text_in_place(datum, &text))
						pgl_text_detoast(datum, &text);
					value->data = text.data;
					value->len = text.len;
					break;
				}
			case PGL_VARLENA:
				{
					struct varlena *v = PG_DETOAST_DATUM(datum);

					value->data = (const char *) v;
					value->len = VARSIZE(v);
					break;
				}
		}
	}
}

/*
 * Latest: what is committed now, and what this transaction wrote.  Instant: what is committed at one instant of the
 * call.  Transaction: what the transaction's snapshot sees.
 *
 * The scan itself never runs under an MVCC snapshot, so none of them takes predicate locks under SERIALIZABLE.
 * SnapshotSelf can find no version at all beside a concurrent update that is not HOT: the caller must be able to tell.
 * Under the others every version is looked at, and a snapshot sees exactly one of them.
 */
static Snapshot
scan_snapshot(int view)
{
	return view == PGL_LATEST ? SnapshotSelf : SnapshotAny;
}

/* Registered, so that what it sees is not pruned meanwhile */
static Snapshot
visible_snapshot(int view)
{
	switch (view)
	{
		case PGL_INSTANT:
			return RegisterSnapshot(GetLatestSnapshot());
		case PGL_TRANSACTION:
			return RegisterSnapshot(GetTransactionSnapshot());
		default:
			return NULL;
	}
}

static IndexScanDesc
begin_key_scan(PglTable *table, Snapshot snapshot, struct varlena *key)
{
	IndexScanDesc scan;
	ScanKeyData scankey;

#if PG_VERSION_NUM >= 180000
	scan = index_beginscan(table->rel, table->indexes[0], snapshot, NULL, 1, 0);
#else
	scan = index_beginscan(table->rel, table->indexes[0], snapshot, 1, 0);
#endif
	ScanKeyEntryInitialize(&scankey, 0, 1, BTEqualStrategyNumber, InvalidOid, C_COLLATION_OID, F_TEXTEQ,
						   PointerGetDatum(key));
	index_rescan(scan, &scankey, 1, NULL, 0);
	return scan;
}

bool
pgl_table_find(PglTable *table, PglText key, int view)
{
	Snapshot	visible = visible_snapshot(view);
	text	   *key_text = cstring_to_text_with_len(key.data, key.len);
	IndexScanDesc scan = begin_key_scan(table, scan_snapshot(view), key_text);
	bool		found;

	do
		found = index_getnext_slot(scan, ForwardScanDirection, table->row);
	while (found && visible != NULL && !table_tuple_satisfies_snapshot(table->rel, table->row, visible));
	/* the slot has a pin of its own */
	index_endscan(scan);
	if (visible != NULL)
		UnregisterSnapshot(visible);
	pfree(key_text);
	if (found)
		read_row(table);
	else
		ExecClearTuple(table->row);
	return found;
}

bool
pgl_table_first(PglTable *table, int view)
{
	Snapshot	visible = visible_snapshot(view);
	TableScanDesc scan = table_beginscan_strat(table->rel, scan_snapshot(view), 0, NULL, true, false);
	bool		found;

	do
		found = table_scan_getnextslot(scan, ForwardScanDirection, table->row);
	while (found && visible != NULL && !table_tuple_satisfies_snapshot(table->rel, table->row, visible));
	if (found)
	{
		/* what the slot holds lies in the scan's memory, so have it fetch the same version for itself */
		ItemPointerData tid = table->row->tts_tid;

		if (!table_tuple_fetch_row_version(table->rel, &tid, SnapshotAny, table->row))
			elog(ERROR, "a pinned row is not there any more");
	}
	table_endscan(scan);
	if (visible != NULL)
		UnregisterSnapshot(visible);
	if (found)
		read_row(table);
	else
		ExecClearTuple(table->row);
	return found;
}

void
pgl_table_scan(PglTable *table, PglScan *scan)
{
	/* not an MVCC snapshot for the scan itself, for the same reason as in scan_snapshot */
	scan->visible = RegisterSnapshot(GetLatestSnapshot());
	scan->scan = table_beginscan_strat(table->rel, SnapshotAny, 0, NULL, true, true);
}

bool
pgl_table_next(PglTable *table, PglScan *scan)
{
	while (table_scan_getnextslot(scan->scan, ForwardScanDirection, table->row))
	{
		CHECK_FOR_INTERRUPTS();
		if (table_tuple_satisfies_snapshot(table->rel, table->row, scan->visible))
		{
			read_row(table);
			return true;
		}
	}
	table_endscan(scan->scan);
	UnregisterSnapshot(scan->visible);
	return false;
}

void
pgl_table_let_go(PglTable *table)
{
	ExecClearTuple(table->row);
}

static TupleTableSlot *
new_row(PglTable *table, const PglValue *values)
{
	TupleTableSlot *slot = table->new_row;

	if (slot == NULL)
		slot = table->new_row = MakeSingleTupleTableSlot(RelationGetDescr(table->rel), &TTSOpsVirtual);
	ExecClearTuple(slot);
	to_datums(RelationGetDescr(table->rel), values, table->shape->columns, slot->tts_values, slot->tts_isnull);
	for (int i = 0; i < table->shape->columns; i++)
		if (slot->tts_isnull[i] && TupleDescAttr(RelationGetDescr(table->rel), i)->attnotnull)
			elog(ERROR, "null value in column %d of relation \"%s\"", i + 1, RelationGetRelationName(table->rel));
	ExecStoreVirtualTuple(slot);
	return slot;
}

/*
 * Which indexes need an entry for the new version.  Summarizing only: the update was HOT, so the others find it from the
 * root of its chain, and an entry of its own would make them corrupt.
 */
typedef enum Needing
{
	NONE_NEEDS,
	SUMMARIZING_NEED,
	ALL_NEED
} Needing;

#if PG_VERSION_NUM >= 160000
typedef TU_UpdateIndexes UpdateIndexes;

static Needing
needing(UpdateIndexes update)
{
	return update == TU_None ? NONE_NEEDS : update == TU_Summarizing ? SUMMARIZING_NEED : ALL_NEED;
}

static bool
is_summarizing(const IndexInfo *info)
{
	return info->ii_Summarizing;
}
#else
/* Before 16 no update is HOT that changes a column of whatever index */
typedef bool UpdateIndexes;

static Needing
needing(UpdateIndexes update)
{
	return update ? ALL_NEED : NONE_NEEDS;
}

static bool
is_summarizing(const IndexInfo *info)
{
	return false;
}
#endif

static void
index_row(PglTable *table, TupleTableSlot *slot, Needing which, bool key_unchanged)
{
	if (which == NONE_NEEDS)
		return;
	for (int i = 0; i < table->indexes_open; i++)
	{
		Relation	index = table->indexes[i];
		IndexInfo  *info = BuildIndexInfo(index);
		Datum		datums[INDEX_MAX_KEYS];
		bool		nulls[INDEX_MAX_KEYS];

		if (info->ii_ReadyForInserts && (which == ALL_NEED || is_summarizing(info)))
		{
			FormIndexDatum(info, slot, NULL, datums, nulls);
			index_insert(index, datums, nulls, &slot->tts_tid, table->rel,
						 index->rd_index->indisunique ? UNIQUE_CHECK_YES : UNIQUE_CHECK_NO,
						 key_unchanged && i == 0, info);
#if PG_VERSION_NUM >= 170000
			index_insert_cleanup(index, info);
#endif
		}
		pfree(info);
	}
}

int
pgl_table_insert(PglTable *table, const PglValue *values)
{
	TupleTableSlot *slot = new_row(table, values);

	if (table->shape->key >= 0)
	{
		/* a row that came meanwhile by hand: do not wait for whoever writes it */
		SnapshotData dirty;
		IndexScanDesc scan;
		bool		found;

		InitDirtySnapshot(dirty);
		scan = begin_key_scan(table, &dirty, (struct varlena *) DatumGetPointer(slot->tts_values[table->shape->key]));
		found = index_getnext_slot(scan, ForwardScanDirection, table->row);
		index_endscan(scan);
		ExecClearTuple(table->row);
		if (found)
			return TransactionIdIsValid(dirty.xmin) || TransactionIdIsValid(dirty.xmax) ? PGL_LOCKED : PGL_CHANGED;
	}
	table_tuple_insert(table->rel, slot, GetCurrentCommandId(true), 0, NULL);
	index_row(table, slot, ALL_NEED, false);
	ExecClearTuple(slot);
	CommandCounterIncrement();
	return PGL_DONE;
}

static int
outcome(TM_Result result)
{
	switch (result)
	{
		case TM_Ok:
			return PGL_DONE;
		case TM_Updated:
		case TM_Deleted:
			return PGL_CHANGED;
		case TM_WouldBlock:
		case TM_BeingModified:
			return PGL_LOCKED;
		case TM_Invisible:
		case TM_SelfModified:
			break;
	}
	elog(ERROR, "unexpected state of a row to be written: %d", (int) result);
}

/* Somebody who still runs has the row locked, or has written over it */
static bool
row_in_use(PglTable *table)
{
	HeapTupleHeader header = ((HeapTupleTableSlot *) table->row)->tuple->t_data;
	TransactionId xmax = HeapTupleHeaderGetRawXmax(header);

	if (header->t_infomask & HEAP_XMAX_INVALID)
		return false;
	if (header->t_infomask & HEAP_XMAX_IS_MULTI)
		return MultiXactIdIsRunning(xmax, HEAP_XMAX_IS_LOCKED_ONLY(header->t_infomask));
	return !TransactionIdIsCurrentTransactionId(xmax) && TransactionIdIsInProgress(xmax);
}

/* Updating or deleting would wait for a row lock; this does not */
static int
lock_row(PglTable *table, LockTupleMode mode)
{
	TM_FailureData failure;

	if (!row_in_use(table))
		return PGL_DONE;
	if (table->lock_row == NULL)
		table->lock_row = table_slot_create(table->rel, NULL);
	return outcome(table_tuple_lock(table->rel, &table->row->tts_tid, SnapshotSelf, table->lock_row,
									GetCurrentCommandId(true), mode, LockWaitSkip, 0, &failure));
}

int
pgl_table_update(PglTable *table, const PglValue *values)
{
	TupleTableSlot *slot = new_row(table, values);
	TM_FailureData failure;
	LockTupleMode mode;
	int			result = lock_row(table, LockTupleNoKeyExclusive);
	UpdateIndexes update_indexes;

	if (result == PGL_DONE)
		result = outcome(table_tuple_update(table->rel, &table->row->tts_tid, slot, GetCurrentCommandId(true),
											SnapshotSelf, InvalidSnapshot, true, &failure, &mode, &update_indexes));
	if (result == PGL_DONE)
	{
		index_row(table, slot, needing(update_indexes), true);
		CommandCounterIncrement();
	}
	ExecClearTuple(slot);
	pgl_table_let_go(table);
	return result;
}

int
pgl_table_delete(PglTable *table)
{
	TM_FailureData failure;
	int			result = lock_row(table, LockTupleExclusive);

	if (result == PGL_DONE)
		result = outcome(table_tuple_delete(table->rel, &table->row->tts_tid, GetCurrentCommandId(true),
											SnapshotSelf, InvalidSnapshot, true, &failure, false));
	if (result == PGL_DONE)
		CommandCounterIncrement();
	pgl_table_let_go(table);
	return result;
}

/* ---------------------------------------------------------------- processes and transactions */

/*
 * The numbers of local transactions are given by a process's slot in the array of backends.  Up to 16 that is another
 * slot than its PGPROC's, and can change while the PGPROC stays the same.
 */
#if PG_VERSION_NUM >= 170000
#define PROC_NUMBER(proc) GetNumberFromPGProc(proc)
#define PROC_INCARNATION(proc) ((proc)->vxid.procNumber)
#define PROC_LXID(proc) ((proc)->vxid.lxid)
#else
#define PROC_NUMBER(proc) ((proc)->pgprocno)
#define PROC_INCARNATION(proc) ((proc)->backendId)
#define PROC_LXID(proc) ((proc)->lxid)
#endif

void
pgl_tx(PglTx *tx)
{
	tx->proc = PROC_NUMBER(MyProc);
	tx->incarnation = PROC_INCARNATION(MyProc);
	tx->lxid = PROC_LXID(MyProc);
}

bool
pgl_tx_running(const PglTx *tx)
{
	volatile PGPROC *proc;

	if (tx->lxid == InvalidLocalTransactionId || tx->proc >= ProcGlobal->allProcCount)
		return false;
	proc = &ProcGlobal->allProcs[tx->proc];
	return PROC_LXID(proc) == tx->lxid && (uint32) PROC_INCARNATION(proc) == tx->incarnation;
}

int
pgl_pid(uint32 proc)
{
	return proc < ProcGlobal->allProcCount ? ((volatile PGPROC *) &ProcGlobal->allProcs[proc])->pid : 0;
}

uint32
pgl_my_proc(void)
{
	return PROC_NUMBER(MyProc);
}

bool
pgl_uses_transaction_snapshot(void)
{
	return IsolationUsesXactSnapshot();
}

bool
pgl_is_atomic(FunctionCallInfo fcinfo)
{
	return fcinfo->context == NULL || !IsA(fcinfo->context, CallContext) ||
		castNode(CallContext, fcinfo->context)->atomic;
}

void
pgl_commit_and_begin(void)
{
	SPI_connect_ext(SPI_OPT_NONATOMIC);
	SPI_commit();
	SPI_finish();
}

bool
pgl_synchronous_commit_off(void)
{
	return synchronous_commit == SYNCHRONOUS_COMMIT_OFF;
}

void
pgl_synchronous_commit_local(void)
{
	set_config_option("synchronous_commit", "local", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
}

/* Of which transaction the commit has begun, and when on the steady clock, in milliseconds */
static LocalTransactionId committing = InvalidLocalTransactionId;
static double commit_began;

static double
steady_ms(void)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	return INSTR_TIME_GET_MILLISEC(now);
}

void
pgl_commit_begins(void)
{
	committing = PROC_LXID(MyProc);
	commit_began = steady_ms();
}

int64
pgl_statement_timeout_left(void)
{
	/*
	 * Background workers have the setting, but no timer.  Inside a statement, where a procedure commits, the timer runs,
	 * or the setting is not in force: it was made inside the statement.
	 */
	if (StatementTimeout <= 0 || committing == InvalidLocalTransactionId || committing != PROC_LXID(MyProc) ||
		get_timeout_active(STATEMENT_TIMEOUT) || ActivePortal != NULL ||
		!(MyBackendType == B_BACKEND || MyBackendType == B_WAL_SENDER))
		return -1;
	return Max((int64) (StatementTimeout - (steady_ms() - commit_began)), 0);
}

MemoryContext
pgl_switch_to_transaction_context(void)
{
	return MemoryContextSwitchTo(TopTransactionContext);
}

void
pgl_switch_to(MemoryContext context)
{
	MemoryContextSwitchTo(context);
}

void
pgl_check_for_interrupts(void)
{
	CHECK_FOR_INTERRUPTS();
}

uint32
pgl_wait_event(const char *name)
{
#if PG_VERSION_NUM >= 170000
	return WaitEventExtensionNew(name);
#else
	return PG_WAIT_EXTENSION;
#endif
}

void
pgl_cancel_sleep(void)
{
	(void) ConditionVariableCancelSleep();
}

LWLock *
pgl_addin_shmem_init_lock(void)
{
	return AddinShmemInitLock;
}

void
pgl_hold_interrupts(void)
{
	HOLD_INTERRUPTS();
}

const char *
pgl_role_name(void)
{
	return GetUserNameFromId(GetUserId(), false);
}

bool
pgl_encoding_is_utf8(void)
{
	return GetDatabaseEncoding() == PG_UTF8;
}

bool
pgl_text_is_valid(PglText text)
{
	return pg_verify_mbstr(GetDatabaseEncoding(), text.data, text.len, true);
}

int32
pgl_text_clip(PglText text, int32 most)
{
	return pg_mbcliplen(text.data, text.len, most);
}

/* ---------------------------------------------------------------- background workers */

bool
pgl_binary_upgrade(void)
{
	return IsBinaryUpgrade;
}

static void
describe_worker(BackgroundWorker *worker, PglText name, const char *type, const char *function)
{
	memset(worker, 0, sizeof(BackgroundWorker));
	snprintf(worker->bgw_name, BGW_MAXLEN, "%.*s", (int) name.len, name.data);
	/* not strlcpy, which is libc's or PostgreSQL's, as it was where the server was built */
	snprintf(worker->bgw_type, BGW_MAXLEN, "%s", type);
	snprintf(worker->bgw_library_name, sizeof(worker->bgw_library_name), "pg_lease");
	snprintf(worker->bgw_function_name, sizeof(worker->bgw_function_name), "%s", function);
	worker->bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker->bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker->bgw_restart_time = BGW_NEVER_RESTART;
}

void
pgl_worker_register(const char *name, const char *function, int restart_seconds)
{
	BackgroundWorker worker;
	PglText		text = {.data = name, .len = (int32) strlen(name)};

	describe_worker(&worker, text, name, function);
	worker.bgw_restart_time = restart_seconds;
	RegisterBackgroundWorker(&worker);
}

BackgroundWorkerHandle *
pgl_worker_start(PglText name, const char *type, const char *function, uint32 argument)
{
	BackgroundWorker worker;
	BackgroundWorkerHandle *handle = NULL;
	MemoryContext context = MemoryContextSwitchTo(TopMemoryContext);

	describe_worker(&worker, name, type, function);
	worker.bgw_main_arg = UInt32GetDatum(argument);
	worker.bgw_notify_pid = MyProcPid;
	if (!RegisterDynamicBackgroundWorker(&worker, &handle))
		handle = NULL;
	MemoryContextSwitchTo(context);
	return handle;
}

bool
pgl_worker_stopped(BackgroundWorkerHandle *handle)
{
	pid_t		pid;

	return GetBackgroundWorkerPid(handle, &pid) == BGWH_STOPPED;
}

void
pgl_worker_signals(void)
{
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	/* not bgworker_die, which ends the process wherever it is */
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
}

void
pgl_worker_connect(uint32 database)
{
	if (database == 0)
		BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	else
		BackgroundWorkerInitializeConnectionByOid(database, InvalidOid, 0);
	pgstat_report_activity(STATE_IDLE, NULL);
}

bool
pgl_worker_sleep(int64 milliseconds, uint32 event)
{
	if (!ProcDiePending)
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, (long) milliseconds, event);
	ResetLatch(MyLatch);
	/* an idle worker goes without a FATAL in the log */
	if (ProcDiePending)
		return true;
	CHECK_FOR_INTERRUPTS();
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
	return false;
}

void
pgl_worker_begin(const char *activity)
{
	SetCurrentStatementStartTimestamp();
	pgstat_report_activity(STATE_RUNNING, activity);
	StartTransactionCommand();
}

void
pgl_worker_commit(void)
{
	CommitTransactionCommand();
	pgstat_report_activity(STATE_IDLE, NULL);
}

void
pgl_worker_idle(void)
{
	(void) pgstat_report_stat(true);
}

void
pgl_set_option(const char *name, const char *value)
{
	/* not in every version, then */
	if (GetConfigOption(name, true, false) != NULL)
		SetConfigOption(name, value, PGC_SUSET, PGC_S_OVERRIDE);
}

void
pgl_wake(uint32 proc)
{
	if (proc < ProcGlobal->allProcCount)
		SetLatch(&ProcGlobal->allProcs[proc].procLatch);
}

void
pgl_pause(int64 microseconds)
{
	pg_usleep((long) microseconds);
}

int
pgl_databases(Oid **oids)
{
	Relation	rel = table_open(DatabaseRelationId, AccessShareLock);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TableScanDesc scan = table_beginscan(rel, snapshot, 0, NULL);
	HeapTuple	tuple;
	int			count = 0;
	int			room = 64;

	*oids = palloc(room * sizeof(Oid));
	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		Form_pg_database database = (Form_pg_database) GETSTRUCT(tuple);

		/* a limit below -1: DROP DATABASE was interrupted */
		if (!database->datallowconn || database->datconnlimit < -1)
			continue;
		if (count == room)
		{
			room *= 2;
			*oids = repalloc(*oids, room * sizeof(Oid));
		}
		(*oids)[count++] = database->oid;
	}
	table_endscan(scan);
	UnregisterSnapshot(snapshot);
	table_close(rel, AccessShareLock);
	return count;
}

const char *
pgl_database_name(uint32 database)
{
	return get_database_name(database);
}

const char *
pgl_pending_message(void)
{
	ErrorData  *error = CopyErrorData();

	return error->message ? error->message : "";
}

/* ---------------------------------------------------------------- utility commands */

static ProcessUtility_hook_type previous_utility = NULL;
static PglUtility utility_callback = NULL;

static bool
may_create_databases(void)
{
	HeapTuple	tuple;
	bool		may;

	if (superuser())
		return true;
	tuple = SearchSysCache1(AUTHOID, ObjectIdGetDatum(GetUserId()));
	may = HeapTupleIsValid(tuple) && ((Form_pg_authid) GETSTRUCT(tuple))->rolcreatedb;
	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return may;
}

/* Nobody who could not run the command gets a sweeper out of the way with it */
static bool
may_need_database(Oid oid, bool as_template)
{
	HeapTuple	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(oid));
	Form_pg_database database;
	bool		may;

	if (!HeapTupleIsValid(tuple))
		return false;
	database = (Form_pg_database) GETSTRUCT(tuple);
	may = has_privs_of_role(GetUserId(), database->datdba) ||
		(as_template && database->datistemplate && may_create_databases());
	ReleaseSysCache(tuple);
	return may;
}

static void
tell_database(const char *name, bool as_template)
{
	/* no name, no such database, no right to it: the command itself says so */
	Oid			oid = name ? get_database_oid(name, true) : InvalidOid;

	if (OidIsValid(oid) && may_need_database(oid, as_template))
		utility_callback(PGL_NEEDS_DATABASE, oid);
}

static void
watch_command(Node *command)
{
	ListCell   *cell;

	switch (nodeTag(command))
	{
		case T_DropdbStmt:
			tell_database(((DropdbStmt *) command)->dbname, false);
			break;
		case T_CreatedbStmt:
			{
				const char *source = "template1";

				foreach(cell, ((CreatedbStmt *) command)->options)
				{
					DefElem    *option = (DefElem *) lfirst(cell);

					if (strcmp(option->defname, "template") == 0 && option->arg != NULL)
						source = defGetString(option);
				}
				tell_database(source, true);
				break;
			}
		case T_RenameStmt:
			if (((RenameStmt *) command)->renameType == OBJECT_DATABASE)
				tell_database(((RenameStmt *) command)->subname, false);
			break;
		case T_AlterDatabaseStmt:
			foreach(cell, ((AlterDatabaseStmt *) command)->options)
				if (strcmp(((DefElem *) lfirst(cell))->defname, "tablespace") == 0)
					tell_database(((AlterDatabaseStmt *) command)->dbname, false);
			break;
		case T_CreateExtensionStmt:
			{
				bool		ours = strcmp(((CreateExtensionStmt *) command)->extname, "pg_lease") == 0;

				foreach(cell, ((CreateExtensionStmt *) command)->options)
					ours |= strcmp(((DefElem *) lfirst(cell))->defname, "cascade") == 0;
				if (ours)
					utility_callback(PGL_CREATES_EXTENSION, MyDatabaseId);
				break;
			}
		case T_DropStmt:
			if (((DropStmt *) command)->removeType == OBJECT_EXTENSION ||
				((DropStmt *) command)->removeType == OBJECT_SCHEMA)
				utility_callback(PGL_TOUCHES_EXTENSION, MyDatabaseId);
			break;
		case T_DropOwnedStmt:
			utility_callback(PGL_TOUCHES_EXTENSION, MyDatabaseId);
			break;
		case T_CopyStmt:
			{
				RangeVar   *into = ((CopyStmt *) command)->relation;

				if (((CopyStmt *) command)->is_from && into != NULL && strcmp(into->relname, "entry") == 0)
					utility_callback(PGL_TOUCHES_EXTENSION, MyDatabaseId);
				break;
			}
		default:
			break;
	}
}

/*
 * No PG_TRY here: what the command raises passes untouched.
 */
static void
utility_hook(PlannedStmt *statement, const char *query, bool read_only_tree, ProcessUtilityContext context,
			 ParamListInfo parameters, QueryEnvironment *environment, DestReceiver *destination, QueryCompletion *completion)
{
	if (IsTransactionState())
		watch_command(statement->utilityStmt);
	(previous_utility ? previous_utility : standard_ProcessUtility)
		(statement, query, read_only_tree, context, parameters, environment, destination, completion);
}

void
pgl_watch_utility(PglUtility callback)
{
	utility_callback = callback;
	previous_utility = ProcessUtility_hook;
	ProcessUtility_hook = utility_hook;
}

/* ---------------------------------------------------------------- for the tests */

#ifdef PG_LEASE_TEST_POINTS

static void
test_context(void *arg)
{
	errcontext("context of a forced error");
}

/* An error with every field that a boundary could lose */
void
pgl_test_error(int32 kind)
{
	ErrorContextCallback context = {.callback = test_context, .previous = error_context_stack};

	error_context_stack = &context;
	if (kind == 0)
		ereport(ERROR,
				errcode(MAKE_SQLSTATE('L', 'E', '9', '9', '9')),
				errmsg("forced error"),
				errdetail("detail of a forced error"),
				errhint("hint of a forced error"),
				err_generic_string(PG_DIAG_SCHEMA_NAME, "forced_schema"),
				err_generic_string(PG_DIAG_TABLE_NAME, "forced_table"),
				err_generic_string(PG_DIAG_COLUMN_NAME, "forced_column"),
				err_generic_string(PG_DIAG_CONSTRAINT_NAME, "forced_constraint"),
				errposition(8));
	if (kind == 1)
		(void) DirectFunctionCall1(int4in, CStringGetDatum("not a number"));
	error_context_stack = context.previous;
}

/*
 * Waits as long as somebody holds SELECT pg_advisory_lock(125534, hashtext('name')).  A heavyweight lock, because
 * isolationtester and pg_blocking_pids see that a session waits for one.
 */
static void
test_tag(LOCKTAG *tag, PglText name)
{
	uint32		hash = hash_bytes((const unsigned char *) name.data, name.len);

	SET_LOCKTAG_ADVISORY(*tag, MyDatabaseId, 125534, hash, 2);
}

void
pgl_test_wait(PglText name)
{
	LOCKTAG		tag;

	test_tag(&tag, name);
	(void) LockAcquire(&tag, ShareLock, true, false);
	LockRelease(&tag, ShareLock, true);
}

/* The same where nothing may be raised */
void
pgl_test_wait_quietly(PglText name)
{
	uint32		holdoff = InterruptHoldoffCount;
	uint32		cancel_holdoff = QueryCancelHoldoffCount;
	MemoryContext context = CurrentMemoryContext;

	HOLD_INTERRUPTS();
	PG_TRY();
	{
		pgl_test_wait(name);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		FlushErrorState();
	}
	PG_END_TRY();
	InterruptHoldoffCount = holdoff;
	QueryCancelHoldoffCount = cancel_holdoff;
}

/*
 * Another module, loaded after us: tells in the server's log in which order PostgreSQL calls it, and waits at the point
 * "observed" once the commit is visible.
 */
static void
observe(XactEvent event, void *arg)
{
	static PglTx tx;

	if (event == XACT_EVENT_PRE_COMMIT)
	{
		pgl_tx(&tx);
		ereport(LOG, errmsg("observer: pre-commit, running: %d", pgl_tx_running(&tx)));
	}
	else if (event == XACT_EVENT_COMMIT)
	{
		PglText		point = {.data = "observed", .len = 8};

		ereport(LOG, errmsg("observer: committed, running: %d", pgl_tx_running(&tx)));
		pgl_test_wait_quietly(point);
	}
	else if (event == XACT_EVENT_ABORT)
		ereport(LOG, errmsg("observer: aborted"));
}

void
pgl_test_observe(void)
{
	RegisterXactCallback(observe, NULL);
}

#endif
