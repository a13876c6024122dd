/** Migrations that create the tables of files, of their text chunks for search, and of the memory of tools. */
import { PostgresAdapter, sql } from 'kysely'
import type { Migration } from 'kysely/migration'

export const files: Migration = {
  async up(db) {
    const isPostgres = db.getExecutor().adapter instanceof PostgresAdapter
    await db.schema
      .createTable('files')
      .addColumn('id', 'text', column => column.primaryKey())
      .addColumn('organization_id', 'text', column => column.notNull())
      .addColumn('workspace_id', 'text', column => column.notNull())
      .addColumn('number', 'bigint', column => column.notNull())
      .addColumn('filename', 'text', column => column.notNull())
      .addColumn('purpose', 'text', column => column.notNull())
      .addColumn('media_type', 'text')
      .addColumn('bytes', 'bigint', column => column.notNull())
      .addColumn('status', 'text', column => column.notNull())
      .addColumn('text', 'text', column => column.notNull())
      .addColumn('created_at', 'text', column => column.notNull())
      .execute()
    await db.schema
      .createIndex('files_by_workspace')
      .on('files')
      .columns(['organization_id', 'workspace_id', 'number'])
      .unique()
      .execute()
    await db.schema
      .createIndex('files_by_name')
      .on('files')
      .columns(['organization_id', 'workspace_id', 'filename', 'number'])
      .execute()
    await db.schema
      .createIndex('files_to_remove')
      .on('files')
      .columns(['status', 'created_at'])
      .where(sql<boolean>`status <> 'stored'`)
      .execute()
    await db.schema
      .createTable('file_passages')
      .addColumn('id', isPostgres ? 'bigserial' : 'integer', column =>
        isPostgres ? column.primaryKey() : column.primaryKey().autoIncrement(),
      )
      .addColumn('file_id', 'text', column => column.notNull())
      .addColumn('number', 'integer', column => column.notNull())
      .addColumn('text', 'text', column => column.notNull())
      .execute()
    await db.schema
      .createIndex('file_passages_by_file')
      .on('file_passages')
      .columns(['file_id', 'number'])
      .unique()
      .execute()
    if (isPostgres) {
      await sql`alter table file_passages add column words tsvector not null`.execute(db)
      await sql`create index file_passages_by_word on file_passages using gin (words)`.execute(db)
    } else {
      // Of its words the index keeps nothing but their places: the text is in the table.
      await sql`
        create virtual table file_words using fts5(words, content='', contentless_delete=1, tokenize='unicode61')
      `.execute(db)
    }
  },
}

export const memory: Migration = {
  async up(db) {
    await db.schema
      .createTable('memory')
      .addColumn('organization_id', 'text', column => column.notNull())
      .addColumn('workspace_id', 'text', column => column.notNull())
      .addColumn('end_user', 'text', column => column.notNull())
      .addColumn('key', 'text', column => column.notNull())
      .addColumn('value', 'text', column => column.notNull())
      .addColumn('updated_at', 'text', column => column.notNull())
      .addPrimaryKeyConstraint('memory_place', ['organization_id', 'workspace_id', 'end_user', 'key'])
      .execute()
  },
}
