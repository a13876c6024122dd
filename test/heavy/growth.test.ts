/** Every list, map and free object of every body at twice the size takes twice the work, whichever provider answers. */
import t from 'tap'
import { growing, startGrowing } from '../support/growing-work.ts'
import { grownOperations } from '../support/grown-operations.ts'

t.test('every place of every body', { timeout: 3_600_000 }, async t => {
  const world = await startGrowing(t)
  for (const { id, growths, models, send } of await grownOperations(t)) {
    const statuses = new Map<number, number>()
    for (const model of models) {
      for (const { path, build } of growths) {
        for (const alike of [false, true]) {
          const found = await growing(world.counter, async count => {
            const status = await send(world, model, build(count, alike))
            statuses.set(status, (statuses.get(status) ?? 0) + 1)
          })
          if (found.length > 0) t.same(found, [], `${id}, ${model}: ${path}${alike ? ', all alike' : ''}`)
        }
      }
    }
    t.pass(
      `${id}: ${growths.length} places; ${[...statuses].map(([status, count]) => `${count} x ${status}`).join(', ')}`,
    )
  }
})
