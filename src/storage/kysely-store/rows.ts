/** Code that all groups of operations share: transactions, list pages, and booleans as 0 and 1. */
import { type Kysely, sql, Transaction } from 'kysely'
import type { Declaration, Fields, RecordOf, RowOf } from '../../protocol/management/record.ts'
import type { Engine } from '../engine.ts'
import type { Page, PageRequest } from '../store.ts'
import type { Tables } from '../tables.ts'

/** The number of matching rows, as a column. */
export const ROW_COUNT = sql<number | string>`count(*)`.as('counted')

interface PageQuery<Row> {
  limit(count: number): PageQuery<Row>
  offset(count: number): PageQuery<Row>
  execute(): Promise<readonly Row[]>
}

interface CountQuery {
  executeTakeFirstOrThrow(): Promise<{ readonly counted: number | string }>
}

/** The first row as a record; null: there is none. */
export async function firstOf<Row, Item>(
  query: { executeTakeFirst(): Promise<Row | undefined> },
  itemOf: (row: Row) => Item,
): Promise<Item | null> {
  const row = await query.executeTakeFirst()
  return row === undefined ? null : itemOf(row)
}

/** A page of `listing`, whose order must be total; `counting` selects ROW_COUNT of the same rows. */
export async function pageOf<Row, Item>(
  listing: PageQuery<Row>,
  counting: CountQuery,
  { offset, limit }: PageRequest,
  itemOf: (row: Row) => Item,
): Promise<Page<Item>> {
  const [rows, { counted }] = await Promise.all([
    listing.limit(limit).offset(offset).execute(),
    counting.executeTakeFirstOrThrow(),
  ])
  return { items: rows.map(itemOf), total: Number(counted) }
}

/** A boolean as columns store it: 0 or 1. */
export function flag(value: boolean): number
export function flag(value: boolean | undefined): number | undefined
export function flag(value: boolean | null): number | null
export function flag(value: boolean | null | undefined): number | null | undefined
export function flag(value: boolean | null | undefined): number | null | undefined {
  return typeof value === 'boolean' ? Number(value) : value
}

/** Runs the work in a transaction: in the current one if `db` is one, otherwise in a new one. */
export function inTransaction<T>(
  db: Kysely<Tables>,
  work: (transaction: Transaction<Tables>) => Promise<T>,
): Promise<T> {
  return db instanceof Transaction ? work(db) : db.transaction().execute(work)
}

/** Like inTransaction, for work that may be lost in a power cut: the commit does not wait for the disk. */
export function inRelaxedTransaction<T>(
  db: Kysely<Tables>,
  engine: Engine,
  work: (transaction: Transaction<Tables>) => Promise<T>,
): Promise<T> {
  return db instanceof Transaction ? work(db) : engine.relax(db, work)
}

type Values = Readonly<Record<string, unknown>>

/** A declared record, or changes to one, as columns. */
export function cellsOf<Of extends Fields>(declaration: Declaration<Of>, record: RecordOf<Of>): RowOf<Of>
export function cellsOf<Of extends Fields>(
  declaration: Declaration<Of>,
  change: Partial<RecordOf<Of>>,
): Partial<RowOf<Of>>
export function cellsOf<Of extends Fields>(declaration: Declaration<Of>, change: object): Partial<RowOf<Of>> {
  const cells: Record<string, unknown> = {}
  const shared: Record<string, object> = {}
  for (const { name, field } of declaration.storedEntries) {
    const value = (change as Values)[name]
    if (value === undefined) continue
    if (field.inside !== undefined) {
      shared[field.inside] = { ...shared[field.inside], [name]: value }
    } else if (value === null) cells[field.as ?? name] = null
    else if (field.column === 'flag') cells[field.as ?? name] = Number(value)
    else cells[field.as ?? name] = field.column === 'json' ? JSON.stringify(value) : value
  }
  for (const [column, values] of Object.entries(shared)) cells[column] = JSON.stringify(values)
  return cells as Partial<RowOf<Of>>
}

/** Converts a row to the declared record. */
export function recordOf<Of extends Fields>(declaration: Declaration<Of>, row: RowOf<Of>): RecordOf<Of> {
  const cells = row as Values
  const shared: Record<string, Values> = {}
  const record: Record<string, unknown> = {}
  for (const { name, field } of declaration.storedEntries) {
    if (field.inside !== undefined) {
      const values = shared[field.inside] ?? (JSON.parse(cells[field.inside] as string) as Values)
      shared[field.inside] = values
      // Records that are older than the field do not have it.
      record[name] = values[name] === undefined ? field.initial : values[name]
      continue
    }
    const cell = cells[field.as ?? name]
    if (cell === null) record[name] = null
    else if (field.column === 'flag') record[name] = cell !== 0
    else if (field.column === 'big') record[name] = Number(cell)
    else record[name] = field.column === 'json' ? JSON.parse(cell as string) : cell
  }
  return record as RecordOf<Of>
}
