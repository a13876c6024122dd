/**
 * Work grows no faster than the body, counted in runs of the product's functions: where parts of a body name each
 * other, and for each kind of element of a list. test/heavy/growth.test.ts has all places at all providers.
 */
import t from 'tap'
import { growing, startGrowing, statusOf, UPSTREAMS } from './support/growing-work.ts'
import { grownOperations } from './support/grown-operations.ts'
import { RELATED } from './support/related-growth.ts'
import { isExhaustive, share } from './support/share.ts'

/** Lists of the body itself. */
const OUTER = /^\.\w+\[[^\]]*\]$/

t.test('a body of twice the size takes twice the work', { timeout: 600_000 }, async t => {
  const world = await startGrowing(t)
  for (const [at, { name, path, body }] of RELATED.entries()) {
    const formats = isExhaustive ? UPSTREAMS : [UPSTREAMS[at % UPSTREAMS.length]]
    const models = path === '/embeddings' ? ['acme/embed'] : formats.map(format => `acme/${format}`)
    for (const model of models) {
      const statuses: number[] = []
      const found = await growing(world.counter, async count => {
        statuses.push(await statusOf(world, path, { model, ...body(count) }))
      })
      t.same(found, [], `${path}, ${model}: ${name} (${statuses.join(', ')})`)
    }
  }
  const operations = await grownOperations(t)
  t.ok(operations.length > 20)
  const statuses = new Map<number, number>()
  for (const { id, growths, models, send } of operations) {
    for (const [at, { path, build }] of share(
      growths.filter(growth => OUTER.test(growth.path)),
      3,
    ).entries()) {
      const model = models[at % models.length] ?? null
      const found = await growing(world.counter, async count => {
        const status = await send(world, model, build(count, at % 2 === 1))
        statuses.set(status, (statuses.get(status) ?? 0) + 1)
      })
      t.same(found, [], `${id}, ${model}: ${path}`)
    }
  }
  t.ok((statuses.get(200) ?? 0) > 100, `bodies were taken: ${JSON.stringify([...statuses])}`)
})
