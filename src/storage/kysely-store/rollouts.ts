/** Rollouts of routes in the database. */
import type { Kysely } from 'kysely'
import { ROLLOUT_ARMS, type RolloutArm } from '../../protocol/rollout.ts'
import type { Engine } from '../engine.ts'
import type { ArmSums, RolloutRecord, RolloutStore, StepSums } from '../rollouts.ts'
import type { RolloutSumsTable, RolloutsTable, Tables } from '../tables.ts'
import { firstOf, inTransaction } from './rows.ts'

type SumColumn = Exclude<keyof RolloutSumsTable, 'route' | 'candidate' | 'step' | 'arm'>

/** The columns of each figure. */
const FIGURE_COLUMNS = {
  firstTokenMs: ['firstTokenCount', 'firstTokenSum', 'firstTokenSquares'],
  tokensPerSecond: ['speedCount', 'speedSum', 'speedSquares'],
  cost: ['costCount', 'costSum', 'costSquares'],
} as const

const COUNT_COLUMNS = ['requests', 'errors', 'judged', 'unaccepted'] as const
/** A call that may cost more than this part of a budget does not end the budget for cheaper calls. */
const RARE_SHARE = 0.25
const SUM_COLUMNS: readonly SumColumn[] = [...COUNT_COLUMNS, ...Object.values(FIGURE_COLUMNS).flat()]

export function createRolloutStore(db: Kysely<Tables>, engine: Engine): RolloutStore {
  return {
    async list() {
      const rows = await db.selectFrom('rollouts').selectAll().orderBy('route').execute()
      return rows.map(recordOf)
    },
    find: route => firstOf(db.selectFrom('rollouts').selectAll().where('route', '=', route), recordOf),
    begin(record, before) {
      return inTransaction(db, async transaction => {
        await engine.serialize(transaction, `rollout ${record.route}`)
        const { route } = record
        const current = await transaction
          .selectFrom('rollouts')
          .select('revision')
          .where('route', '=', route)
          .executeTakeFirst()
        if (current?.revision !== before?.revision) return false
        await transaction.deleteFrom('rolloutSums').where('route', '=', route).execute()
        await transaction.deleteFrom('rollouts').where('route', '=', route).execute()
        await transaction.insertInto('rollouts').values(record).execute()
        return true
      })
    },
    async move({ route, revision }, target) {
      const { numUpdatedRows } = await db
        .updateTable('rollouts')
        .set({ ...target, revision: revision + 1 })
        .where(eb => eb.and({ route, revision }))
        .executeTakeFirst()
      return numUpdatedRows > 0n
    },
    async explain({ route, revision }, reason) {
      await db
        .updateTable('rollouts')
        .set({ reason })
        .where(eb => eb.and({ route, revision }))
        .execute()
    },
    add: entries =>
      inTransaction(db, async transaction => {
        for (const { route, candidate, step, arm, sums } of entries)
          await transaction
            .insertInto('rolloutSums')
            .values({ route, candidate, step, arm, ...columnsOf(sums) })
            .onConflict(conflict =>
              conflict
                .columns(['route', 'candidate', 'step', 'arm'])
                .doUpdateSet(({ ref, eb }) =>
                  Object.fromEntries(
                    SUM_COLUMNS.map(name => [
                      name,
                      eb(ref(`rolloutSums.${name}`), '+', ref(`excluded.${name}`)),
                    ]),
                  ),
                ),
            )
            .execute()
      }),
    async sums({ route, candidate, step }) {
      const rows = await db
        .selectFrom('rolloutSums')
        .selectAll()
        .where(eb => eb.and({ route, candidate, step }))
        .execute()
      const armSums = (arm: RolloutArm) => [arm, sumsOf(rows.find(row => row.arm === arm))] as const
      return Object.fromEntries(ROLLOUT_ARMS.map(armSums)) as StepSums
    },
    async reserveShadow({ route, candidate }, amount, budget, isLast) {
      const update = () => db.updateTable('rollouts').where(eb => eb.and({ route, candidate }))
      const { numUpdatedRows } = await update()
        .set(({ eb }) => ({ shadowSpent: eb('shadowSpent', '+', amount) }))
        .where('shadowSpent', '<=', budget - amount)
        .executeTakeFirst()
      if (numUpdatedRows > 0n || !isLast) return numUpdatedRows > 0n
      await update()
        .set({ shadowRefused: budget })
        .where('shadowSpent', '>', Math.floor(budget - Math.min(amount, budget * RARE_SHARE)))
        .execute()
      return false
    },
    async settleShadow({ route, candidate }, reserved, cost, shadows) {
      await db
        .updateTable('rollouts')
        .set(({ eb }) => ({
          shadows: eb('shadows', '+', shadows),
          shadowSpent: eb('shadowSpent', '+', cost - reserved),
          shadowRefused: 0,
        }))
        .where(eb => eb.and({ route, candidate }))
        // A rollout does not contain amounts that an earlier rollout of the same candidate has reserved.
        .where('shadowSpent', '>=', reserved)
        .execute()
    },
  }
}

function recordOf({ sinceMs, shadows, shadowSpent, shadowRefused, ...row }: RolloutsTable): RolloutRecord {
  return {
    ...row,
    sinceMs: Number(sinceMs),
    shadows: Number(shadows),
    shadowSpent: Number(shadowSpent),
    shadowRefused: Number(shadowRefused),
  }
}

function columnsOf(sums: ArmSums): Record<SumColumn, number> {
  const columns: Partial<Record<SumColumn, number>> = {}
  for (const count of COUNT_COLUMNS) columns[count] = sums[count]
  for (const [figure, [count, sum, squares]] of Object.entries(FIGURE_COLUMNS)) {
    const figureSums = sums[figure as keyof typeof FIGURE_COLUMNS]
    columns[count] = figureSums.count
    columns[sum] = figureSums.sum
    columns[squares] = figureSums.squares
  }
  return columns as Record<SumColumn, number>
}

function sumsOf(row: RolloutSumsTable | undefined): ArmSums {
  const columnValue = (column: SumColumn) => Number(row?.[column] ?? 0)
  const figure = ([count, sum, squares]: readonly [SumColumn, SumColumn, SumColumn]) => ({
    count: columnValue(count),
    sum: columnValue(sum),
    squares: columnValue(squares),
  })
  return {
    requests: columnValue('requests'),
    errors: columnValue('errors'),
    judged: columnValue('judged'),
    unaccepted: columnValue('unaccepted'),
    firstTokenMs: figure(FIGURE_COLUMNS.firstTokenMs),
    tokensPerSecond: figure(FIGURE_COLUMNS.tokensPerSecond),
    cost: figure(FIGURE_COLUMNS.cost),
  }
}
