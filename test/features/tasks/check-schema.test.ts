/** Values against clients' schemas, and schemas that are attacks. */
import { monitorEventLoopDelay } from 'node:perf_hooks'
import t, { type Test } from 'tap'
import { systemClock } from '../../../src/base/clock.ts'
import { createMetrics } from '../../../src/base/metrics/metrics.ts'
import { checkSchema } from '../../../src/features/tasks/check-schema.ts'
import { createTaskPool } from '../../../src/features/tasks/pool/pool.ts'
import { TaskError, TaskFailure } from '../../../src/features/tasks/task.ts'
import { hostileSchemas } from '../../support/hostile-schemas.ts'

const check = (schema: unknown, value: unknown) => checkSchema({ schema, text: JSON.stringify(value) })
const faults = (schema: unknown, value: unknown) =>
  check(schema, value).faults.map(({ path, keyword }) => `${path} ${keyword}`)
const refusal = (schema: unknown) => {
  try {
    check(schema, {})
    return null
  } catch (error) {
    if (!(error instanceof TaskFailure)) throw error
    return error
  }
}

const PERSON = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  title: 'Person',
  type: 'object',
  properties: {
    name: { type: 'string', minLength: 1, pattern: '^[A-Z]' },
    age: { type: ['integer', 'null'], minimum: 0 },
    tags: { type: 'array', items: { enum: ['a', 'b'] }, maxItems: 2 },
    boss: { $ref: '#' },
    address: { $ref: '#/$defs/address' },
  },
  required: ['name', 'age'],
  additionalProperties: false,
  $defs: { address: { type: 'object', properties: { zip: { type: 'string' } }, required: ['zip'] } },
}

t.test('a value that satisfies its schema is valid', async t => {
  const boss = { name: 'Ada', age: null }
  t.same(check(PERSON, { name: 'Bob', age: 3, tags: ['a'], boss, address: { zip: '1' } }), {
    valid: true,
    faults: [],
  })
  t.equal(check(true, 1).valid, true)
  t.equal(check(false, 1).valid, false)
  t.equal(check({ type: 'string' }, 'x').valid, true)
})

t.test('faults name place and keyword, and no value', async t => {
  t.same(faults(PERSON, { name: 'Bob' }), [' required'])
  t.same(faults(PERSON, { name: 'bob', age: 1 }), ['/name pattern'])
  t.same(faults(PERSON, { name: 'Bob', age: 1.5 }), ['/age type'])
  t.same(faults(PERSON, { name: 'Bob', age: 1, tags: ['a', 'c'] }), ['/tags/1 enum'])
  t.same(faults(PERSON, { name: 'Bob', age: 1, more: 1 }), ['/more not_allowed'])
  t.same(faults(PERSON, { name: 'Bob', age: 1, boss: { name: 'X', age: 1, address: {} } }), [
    '/boss/address required',
  ])
  t.notMatch(JSON.stringify(check({ const: 'sealed' }, 'canary')), /canary|sealed/)
})

t.test('a text that is no JSON is a fault of the value', async t => {
  t.same(checkSchema({ schema: {}, text: '{"a":' }), {
    valid: false,
    faults: [{ path: '', keyword: 'json' }],
  })
})

t.test('a pattern counts beside other conditions of its schema', async t => {
  const schema = { allOf: [{ minLength: 3 }], pattern: 'b', format: 'email' }
  t.equal(check(schema, 'b@c.de').valid, true)
  t.same(faults(schema, 'x@y.za').toSorted(), [' pattern'])
  t.same(faults({ pattern: '^a', items: false }, 5), [], 'patterns are for strings')
  t.same(faults({ propertyNames: { pattern: '^[a-z]+$' } }, { ok: 1, NO: 1 }), ['/NO pattern'])
})

t.test('lists of items are understood as of both drafts', async t => {
  for (const keyword of ['items', 'prefixItems']) {
    t.equal(check({ [keyword]: [{ type: 'string' }, { type: 'number' }] }, ['a', 1]).valid, true)
    t.same(faults({ [keyword]: [{ type: 'string' }, { type: 'number' }] }, ['a', 'b']), ['/1 type'])
  }
})

t.test(
  'what cannot be interpreted safely is refused with the keyword, before the value is looked at',
  async t => {
    for (const [schema, expected] of [
      [{ $ref: 'https://example.com/x' }, /\$ref must point into the schema itself/],
      [{ pattern: '(?=a)b' }, /without look-around/],
      [{ pattern: '(a)\\1' }, /without look-around/],
      [{ patternProperties: {} }, /patternProperties is not supported/],
      [{ $dynamicRef: '#a' }, /\$dynamicRef is not supported/],
      [{ properties: { a: { type: 'strin' } } }, /type must be a JSON type/],
      [{ properties: [] }, /properties must be an object/],
      [5, /every schema must be an object or a boolean/],
    ] as const) {
      const error = refusal(schema)
      t.equal(error?.code, 'bad_schema')
      t.match(error?.message, expected)
    }
    t.equal(refusal({ $ref: '#/nowhere' })?.code, 'bad_schema')
    t.equal(refusal({ pattern: '(a{1,500}){1,501}' })?.code, 'too_large')
    t.equal(refusal({ $ref: '#' })?.code, 'too_complex')
  },
)

t.test('no check leaves anything behind for the next', async t => {
  check({ pattern: 'a' }, 'a')
  t.same(faults({ format: 'pattern 0' }, 'b'), [], 'an unknown format is a remark')
  t.same(faults({ pattern: 'b' }, 'b'), [])
})

function startPool(t: Test) {
  const pool = createTaskPool({ threads: 1, clock: systemClock, metrics: createMetrics() })
  t.teardown(() => pool.close())
  return pool
}

t.test('hostile schemas end in an answer, and the pool serves the next', async t => {
  const pool = startPool(t)
  const harmless = { schema: { type: 'number' }, text: '1' }
  const ample = { deadlineMs: 30_000 }
  t.equal((await pool.run('check-schema', harmless, ample)).valid, true)
  /** What takes longer hangs; once a pause of the machine may have taken it. */
  const DEADLINES_MS = [250, 1_000]
  const all = hostileSchemas()
  t.ok(all.length >= 200)
  const outcomes: Record<string, number> = {}
  // Told, not asserted: they are this machine's as well.
  const loop = monitorEventLoopDelay({ resolution: 5 })
  let [slowestMs, slowestNextMs] = [0, 0]
  loop.enable()
  for (const { name, schema, text } of all) {
    let outcome = 'timeout'
    for (const deadlineMs of DEADLINES_MS) {
      if (outcome !== 'timeout') break
      const startMs = performance.now()
      outcome = await pool.run('check-schema', { schema, text }, { deadlineMs }).then(
        ({ valid }) => (valid ? 'valid' : 'invalid'),
        (error: unknown) => {
          if (!(error instanceof TaskError)) throw error
          return error.failure?.code ?? error.outcome
        },
      )
      slowestMs = Math.max(slowestMs, performance.now() - startMs)
      if (outcome !== 'timeout' && outcome !== 'crashed') break
      const nextMs = performance.now()
      t.equal((await pool.run('check-schema', harmless, ample)).valid, true, `after ${name}`)
      slowestNextMs = Math.max(slowestNextMs, performance.now() - nextMs)
    }
    outcomes[outcome] = (outcomes[outcome] ?? 0) + 1
    if (outcome === 'internal') t.fail(`${name}: ${outcome}`)
  }
  loop.disable()
  t.comment(`${all.length} schemas: ${JSON.stringify(outcomes)}`)
  t.comment(
    `slowest answer ${slowestMs.toFixed(0)} ms, next after a slow one ${slowestNextMs.toFixed(0)} ms, ` +
      `event loop late by ${(loop.max / 1e6).toFixed(0)} ms at most`,
  )
  // Decided by the schema alone, before any work on it.
  t.ok((outcomes['bad_schema'] ?? 0) >= 100, JSON.stringify(outcomes))
  t.ok((outcomes['too_large'] ?? 0) >= 40, JSON.stringify(outcomes))
})
