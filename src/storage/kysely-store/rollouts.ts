/** Rollouts of routes in the database. */
import type { Kysely } from 'kysely'
import { ROLLOUT_ARMS, type RolloutArm } from '../../protocol/rollout.ts'
import type { Engine } from '../engine.ts'
import type { ArmSums, RolloutRecord, RolloutStore, StepSums } from '../rollouts.ts'
import type { RolloutSumsTable, RolloutsTable, Tables } from '../tables.ts'
import { firstOf, inTransaction } from './rows.ts'

type SumColumn = Exclude<keyof RolloutSumsTable, 'route' | 'candidate' | 'step' | 'arm'>

/** The columns of each figure. */
const FIGURES = {
  firstTokenMs: ['firstTokenCount', 'firstTokenSum', 'firstTokenSquares'],
  tokensPerSecond: ['speedCount', 'speedSum', 'speedSquares'],
  cost: ['costCount', 'costSum', 'costSquares'],
} as const

const COUNTS = ['requests', 'errors', 'judged', 'unaccepted'] as const
/** A single call that may cost more than this part of a budget does not end it for smaller ones. */
const RARE_SHARE = 0.25
const SUMS: readonly SumColumn[] = [...COUNTS, ...Object.values(FIGURES).flat()]

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
        const now = await transaction
          .selectFrom('rollouts')
          .select('revision')
          .where('route', '=', route)
          .executeTakeFirst()
        if (now?.revision !== before?.revision) return false
        await transaction.deleteFrom('rolloutSums').where('route', '=', route).execute()
        await transaction.deleteFrom('rollouts').where('route', '=', route).execute()
        await transaction.insertInto('rollouts').values(record).execute()
        return true
      })
    },
    async move({ route, revision }, to) {
      const { numUpdatedRows } = await db
        .updateTable('rollouts')
        .set({ ...to, revision: revision + 1 })
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
    add: all =>
      inTransaction(db, async transaction => {
        for (const { route, candidate, step, arm, sums } of all)
          await transaction
            .insertInto('rolloutSums')
            .values({ route, candidate, step, arm, ...columnsOf(sums) })
            .onConflict(conflict =>
              conflict
                .columns(['route', 'candidate', 'step', 'arm'])
                .doUpdateSet(({ ref, eb }) =>
                  Object.fromEntries(
                    SUMS.map(name => [name, eb(ref(`rolloutSums.${name}`), '+', ref(`excluded.${name}`))]),
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
      const of = (arm: RolloutArm) => [arm, sumsOf(rows.find(row => row.arm === arm))] as const
      return Object.fromEntries(ROLLOUT_ARMS.map(of)) as StepSums
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
        // What an earlier rollout of the same candidate reserved is not in this one.
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
  for (const count of COUNTS) columns[count] = sums[count]
  for (const [figure, [count, sum, squares]] of Object.entries(FIGURES)) {
    const of = sums[figure as keyof typeof FIGURES]
    columns[count] = of.count
    columns[sum] = of.sum
    columns[squares] = of.squares
  }
  return columns as Record<SumColumn, number>
}

function sumsOf(row: RolloutSumsTable | undefined): ArmSums {
  const of = (column: SumColumn) => Number(row?.[column] ?? 0)
  const figure = ([count, sum, squares]: readonly [SumColumn, SumColumn, SumColumn]) => ({
    count: of(count),
    sum: of(sum),
    squares: of(squares),
  })
  return {
    requests: of('requests'),
    errors: of('errors'),
    judged: of('judged'),
    unaccepted: of('unaccepted'),
    firstTokenMs: figure(FIGURES.firstTokenMs),
    tokensPerSecond: figure(FIGURES.tokensPerSecond),
    cost: figure(FIGURES.cost),
  }
}
