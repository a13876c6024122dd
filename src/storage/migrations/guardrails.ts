/**
 * Migration that creates the tables of guardrails and their assignments. Fields that queries filter on have a column;
 * the rules are JSON. Deleting a workspace, key or guardrail deletes dependent rows. Each existing workspace gets an
 * empty default guardrail.
 */
import type { Migration } from 'kysely/migration'
import { systemClock } from '../../base/clock.ts'
import { defaultGuardrailId } from '../guardrails.ts'

interface WorkspaceRow {
  readonly organization_id: string
  readonly id: string
}

export const guardrails: Migration = {
  async up(db) {
    await db.schema
      .createTable('guardrails')
      .addColumn('id', 'text', column => column.primaryKey())
      .addColumn('organization_id', 'text', column => column.notNull())
      .addColumn('workspace_id', 'text')
      .addColumn('is_workspace_default', 'integer', column => column.notNull())
      .addColumn('name', 'text', column => column.notNull())
      .addColumn('description', 'text')
      .addColumn('spend_limit', 'bigint')
      .addColumn('reset_interval', 'text')
      .addColumn('include_byok_in_budgets', 'integer', column => column.notNull())
      .addColumn('rules', 'text', column => column.notNull())
      .addColumn('revision', 'integer', column => column.notNull())
      .addColumn('created_at', 'text', column => column.notNull())
      .addColumn('updated_at', 'text', column => column.notNull())
      // Those of the whole organization have no workspace.
      .addForeignKeyConstraint(
        'guardrails_workspace',
        ['organization_id', 'workspace_id'],
        'workspaces',
        ['organization_id', 'id'],
        constraint => constraint.onDelete('cascade'),
      )
      .execute()
    await db.schema
      .createIndex('guardrails_by_workspace')
      .on('guardrails')
      .columns(['organization_id', 'workspace_id', 'created_at', 'id'])
      .execute()
    await db.schema
      .createTable('guardrail_assignments')
      .addColumn('id', 'text', column => column.primaryKey())
      .addColumn('organization_id', 'text', column => column.notNull())
      .addColumn('guardrail_id', 'text', column =>
        column.notNull().references('guardrails.id').onDelete('cascade'),
      )
      // One of the two: whom it is assigned to, who has one guardrail at most.
      .addColumn('key_hash', 'text', column =>
        column.unique().references('api_keys.hash').onDelete('cascade'),
      )
      .addColumn('member_id', 'text')
      .addColumn('assigned_by', 'text')
      .addColumn('created_at', 'text', column => column.notNull())
      .addUniqueConstraint('guardrail_assignments_member', ['organization_id', 'member_id'])
      .execute()
    await db.schema
      .createIndex('guardrail_assignments_by_guardrail')
      .on('guardrail_assignments')
      .columns(['guardrail_id', 'created_at', 'id'])
      .execute()
    await db.schema
      .createIndex('guardrail_assignments_by_age')
      .on('guardrail_assignments')
      .columns(['organization_id', 'created_at', 'id'])
      .execute()
    const now = new Date(systemClock.nowMs()).toISOString()
    const workspaces: readonly WorkspaceRow[] = await db
      .selectFrom('workspaces')
      .select(['organization_id', 'id'])
      .execute()
    for (const workspace of workspaces) {
      await db
        .insertInto('guardrails')
        .values({
          id: defaultGuardrailId(workspace.organization_id, workspace.id),
          organization_id: workspace.organization_id,
          workspace_id: workspace.id,
          is_workspace_default: 1,
          name: `Workspace ${workspace.id} Default`,
          include_byok_in_budgets: 0,
          rules: '{}',
          revision: 1,
          created_at: now,
          updated_at: now,
        })
        .execute()
    }
  },
}
