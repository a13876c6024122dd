/** Code that all groups of operations share: transactions, list pages, and booleans as 0 and 1. */
import { type Kysely, sql, Transaction } from 'kysely'
import type { Engine } from '../engine.ts'
import type { Page, PageRequest } from '../store.ts'
import type { Tables } from '../tables.ts'

/** The number of matching rows, as a column. */
export const COUNTED = sql<number | string>`count(*)`.as('counted')

interface Listing<Row> {
  limit(count: number): Listing<Row>
  offset(count: number): Listing<Row>
  execute(): Promise<readonly Row[]>
}

interface Counting {
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

/** A page of `listing`, whose order must be total; `counting` selects COUNTED of the same rows. */
export async function pageOf<Row, Item>(
  listing: Listing<Row>,
  counting: Counting,
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

/** Runs the work in a transaction: in the running one where `db` is one, otherwise in a new one. */
export function inTransaction<T>(
  db: Kysely<Tables>,
  work: (transaction: Transaction<Tables>) => Promise<T>,
): Promise<T> {
  return db instanceof Transaction ? work(db) : db.transaction().execute(work)
}

/** The same for work whose loss in a power cut harms nobody: its commit does not wait for the disk. */
export function inRelaxedTransaction<T>(
  db: Kysely<Tables>,
  engine: Engine,
  work: (transaction: Transaction<Tables>) => Promise<T>,
): Promise<T> {
  return db instanceof Transaction ? work(db) : engine.relax(db, work)
}
