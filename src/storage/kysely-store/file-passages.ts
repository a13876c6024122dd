/**
 * Full-text search over files: FTS5 in SQLite, text search vectors in PostgreSQL. Each passage also contains a word for
 * its workspace, so that the index itself separates workspaces, and texts of other workspaces cost a search nothing.
 */
import { createHash } from 'node:crypto'
import { setImmediate as turn } from 'node:timers/promises'
import { type Kysely, type RawBuilder, sql } from 'kysely'
import type { Engine } from '../engine.ts'
import type { FileStore, FoundPassage, NewPassage, PassageQuery, WorkspaceScope } from '../files.ts'
import type { Tables } from '../tables.ts'
import { inTransaction } from './rows.ts'

/** Rows per statement, far below the maximum number of parameters. */
const STATEMENT_ROWS_MAX = 256

/** Passages that one transaction removes. */
const TRANSACTION_REMOVALS_MAX = 100

type PassageVerbs = Pick<FileStore, 'addPassages' | 'removePassages' | 'search'>

export function createPassageStore(db: Kysely<Tables>, engine: Engine): PassageVerbs {
  return {
    addPassages: (fileId, passages) =>
      inTransaction(db, async transaction => {
        const file = await transaction
          .selectFrom('files')
          .select(['organizationId', 'workspaceId'])
          .where('id', '=', fileId)
          .executeTakeFirst()
        if (file === undefined) return
        const scope = scopeOf(file)
        for (let start = 0; start < passages.length; start += STATEMENT_ROWS_MAX) {
          const part = passages.slice(start, start + STATEMENT_ROWS_MAX)
          if (engine.name === 'postgres') await addVectors(transaction, fileId, scope, part)
          else await addWords(transaction, fileId, scope, part)
        }
      }),
    removePassages: fileId => removePassages(db, engine, fileId),
    search: (query, limit) => searchPassages(db, engine, query, limit),
  }
}

/**
 * Removes passages in parts of a few milliseconds: a large file has thousands, and an embedded database blocks the
 * calling thread. An invisible file cannot be found in the meantime. `onLastPart` runs in the transaction of the last
 * part.
 */
export async function removePassages(
  db: Kysely<Tables>,
  engine: Engine,
  fileId: string,
  onLastPart: (transaction: Kysely<Tables>) => Promise<unknown> = async () => undefined,
): Promise<void> {
  const removeSome = (): Promise<boolean> =>
    inTransaction(db, async transaction => {
      if ((await removePart(transaction, engine, fileId)) === TRANSACTION_REMOVALS_MAX) return true
      await onLastPart(transaction)
      return false
    })
  while (await removeSome()) await turn()
}

/** Returns the number of removed passages. */
async function removePart(db: Kysely<Tables>, engine: Engine, fileId: string): Promise<number> {
  const rows = await db
    .selectFrom('filePassages')
    .select('id')
    .where('fileId', '=', fileId)
    .orderBy('id')
    .limit(TRANSACTION_REMOVALS_MAX)
    .execute()
  if (rows.length === 0) return 0
  const ids = rows.map(({ id }) => id)
  if (engine.name === 'sqlite')
    await sql`delete from file_words where rowid in (${sql.join(ids.map(Number))})`.execute(db)
  await db.deleteFrom('filePassages').where('id', 'in', ids).execute()
  return rows.length
}

async function addVectors(
  db: Kysely<Tables>,
  fileId: string,
  scope: string,
  passages: readonly NewPassage[],
): Promise<void> {
  const rows = passages.map(
    ({ number, text, words }) =>
      sql`(${fileId}, ${number}, ${text}, to_tsvector('simple', ${`${scope} ${words}`}))`,
  )
  if (rows.length === 0) return
  await sql`insert into file_passages (file_id, number, text, words) values ${sql.join(rows)}`.execute(db)
}

async function addWords(
  db: Kysely<Tables>,
  fileId: string,
  scope: string,
  passages: readonly NewPassage[],
): Promise<void> {
  for (const { number, text, words } of passages) {
    const { id } = await db
      .insertInto('filePassages')
      .values({ fileId, number, text })
      .returning('id')
      .executeTakeFirstOrThrow()
    await sql`insert into file_words (rowid, words) values (${Number(id)}, ${`${scope} ${words}`})`.execute(
      db,
    )
  }
}

async function searchPassages(
  db: Kysely<Tables>,
  engine: Engine,
  query: PassageQuery,
  limit: number,
): Promise<readonly FoundPassage[]> {
  const { words, fileIds, organizationId, workspaceId } = query
  if (words.length === 0 || fileIds?.length === 0) return []
  const fileCondition: RawBuilder<unknown> =
    fileIds === null ? sql`` : sql`and files.id in (${sql.join([...fileIds])})`
  // The workspace word narrows the search; the columns enforce access.
  const ownCondition = sql`
    files.status = 'stored' and files.text = 'indexed'
    and files.organization_id = ${organizationId} and files.workspace_id = ${workspaceId} ${fileCondition}
  `
  const scope = scopeOf(query)
  const columns = sql`
    file_passages.file_id as "fileId", files.filename as "filename",
    file_passages.number as "number", file_passages.text as "text"
  `
  const { rows } =
    engine.name === 'postgres'
      ? await sql<FoundPassage>`
          with query as (select ${vectorQuery(scope, words)} as terms)
          select ${columns} from query, file_passages join files on files.id = file_passages.file_id
          where file_passages.words @@ query.terms and ${ownCondition}
          order by ts_rank(file_passages.words, query.terms) desc, file_passages.id limit ${limit}
        `.execute(db)
      : await sql<FoundPassage>`
          select ${columns} from file_words
          join file_passages on file_passages.id = file_words.rowid
          join files on files.id = file_passages.file_id
          where file_words match ${wordQuery(scope, words)} and ${ownCondition}
          order by bm25(file_words), file_passages.id limit ${limit}
        `.execute(db)
  return rows.map(row => ({ ...row, number: Number(row.number) }))
}

/** Each word is quoted, so that none is read as an operator. */
function wordQuery(scope: string, words: readonly string[]): string {
  const quotedWords = words.map(word => `"${word.replaceAll('"', '""')}"`)
  return `"${scope}" AND (${quotedWords.join(' OR ')})`
}

function vectorQuery(scope: string, words: readonly string[]): RawBuilder<unknown> {
  const terms = words.map(word => sql`plainto_tsquery('simple', ${word})`)
  return sql`plainto_tsquery('simple', ${scope}) && (${sql.join(terms, sql` || `)})`
}

/** A word that no text contains. Its first letter keeps databases from reading it as a number. */
function scopeOf({ organizationId, workspaceId }: WorkspaceScope): string {
  const hash = createHash('sha256')
    .update(JSON.stringify([organizationId, workspaceId]))
    .digest('hex')
  return `w${hash.replaceAll(/\d/g, digit => 'ghijklmnop'[Number(digit)] ?? '')}`
}
