/** Values against clients' schemas, and schemas that are attacks. */
import { monitorEventLoopDelay } from 'node:perf_hooks'
import t, { type Test } from 'tap'
import { systemClock } from '../../../src/base/clock.ts'
import { createMetrics } from '../../../src/base/metrics/metrics.ts'
import { checkSchema } from '../../../src/features/tasks/check-schema.ts'
import { createTaskPool } from '../../../src/features/tasks/pool/pool.ts'
import { TaskError, TaskFailure } from '../../../src/features/tasks/task.ts'

// Schemas and values that are designed to hang, exhaust or confuse their evaluator.

interface HostileSchema {
  readonly name: string
  readonly schema: unknown
  readonly text: string
}

const PATTERNS = [
  '^(a+)+$',
  '^(a|a)*$',
  '^(a|aa)+$',
  '^(.*a){20}$',
  '^((a+)+)+$',
  '(x+x+)+y',
  '^(([a-z])+.)+[A-Z]([a-z])+$',
  '^(a?){30}a{30}$',
  '(.*)*$',
  '^(\\w+\\s?)*$',
  '^([a-zA-Z0-9])(([\\-.]|[_]+)?([a-zA-Z0-9]+))*(@){1}[a-z0-9]+[.]{1}$',
  '(a|b|ab)*c',
  '^(\\d+)*\\D$',
  '([^"]*)*"',
  '(?:a*)*b',
  '^(?:(?:a{1,100}){1,100})$',
  '(a{1,1000}){1,1000}',
  '(?=(a+))a*b\\1',
  '(?!x)(a+)+$',
  '(a+)\\1+$',
  '(?<=a+)b',
  '(?<n>a+)\\k<n>+',
  '\\p{L}{1,999}\\p{L}{1,999}',
  'a{1,999}a{1,999}a{1,999}',
  '(',
  '[',
  'a{2,1}',
  '*',
  '\\',
  '(?<',
  '[z-a]',
  'a**',
  '\\u{110000}',
  'a'.repeat(5_000),
  '(?:'.repeat(400) + ')'.repeat(400),
  `${'('.repeat(500)}a${')*'.repeat(500)}`,
  'x{0}'.repeat(200),
  '.{500}.{500}',
  '[\\s\\S]*[\\s\\S]*[\\s\\S]*[\\s\\S]*!',
  '^$|'.repeat(250),
]

const VALUES = [`${'a'.repeat(50_000)}!`, 'ab'.repeat(5_000), `${'x'.repeat(30)}z`]

const nested = (depth: number, wrap: (inner: unknown) => unknown): unknown => {
  let schema: unknown = { type: 'string' }
  for (let at = 0; at < depth; at++) schema = wrap(schema)
  return schema
}

const branches = (count: number) =>
  Array.from({ length: count }, (_, n) => ({ type: 'object', required: [`k${n}`] }))
/** Each level refers twice to the one below: 2^n evaluations of n definitions. */
const doubling = (keyword: string, levels: number) => ({
  $defs: Object.fromEntries(
    Array.from({ length: levels }, (_, n) => [
      `l${n}`,
      n === 0
        ? { type: 'string' }
        : { [keyword]: [{ $ref: `#/$defs/l${n - 1}` }, { $ref: `#/$defs/l${n - 1}` }] },
    ]),
  ),
  $ref: `#/$defs/l${levels - 1}`,
})

const STRUCTURES: Readonly<Record<string, readonly [schema: unknown, value: unknown]>> = {
  itself: [{ $ref: '#' }, 1],
  'itself by a definition': [{ $defs: { a: { $ref: '#/$defs/a' } }, $ref: '#/$defs/a' }, 1],
  'two that refer to each other': [
    { $defs: { a: { $ref: '#/$defs/b' }, b: { $ref: '#/$defs/a' } }, $ref: '#/$defs/a' },
    1,
  ],
  'itself under anyOf': [{ anyOf: [{ $ref: '#' }, { $ref: '#' }] }, 1],
  'itself under not': [{ not: { $ref: '#' } }, 1],
  'anyOf doubled 24 times': [doubling('anyOf', 25), 1],
  'allOf doubled 24 times': [doubling('allOf', 25), 'text'],
  'oneOf doubled 24 times': [doubling('oneOf', 25), 1],
  'a reference to another host': [{ $ref: 'https://example.com/schema.json' }, 1],
  'a reference to a file': [{ $ref: 'file:///etc/passwd' }, 1],
  'a reference to nowhere': [{ $ref: '#/nowhere' }, 1],
  'a base elsewhere': [{ properties: { a: { $id: 'https://example.com/' } } }, { a: 1 }],
  'a dynamic reference': [{ $dynamicRef: '#x' }, 1],
  'a recursive reference': [
    { $recursiveAnchor: true, properties: { a: { $recursiveRef: '#' } } },
    { a: { a: 1 } },
  ],
  'patterns for names': [
    { patternProperties: { '^(a+)+$': { type: 'string' } } },
    { [`${'a'.repeat(40)}!`]: 1 },
  ],
  'a pattern for names': [{ propertyNames: { pattern: '^(a+)+$' } }, { [`${'a'.repeat(5_000)}!`]: 1 }],
  'distinct among 40,000': [{ uniqueItems: true }, Array.from({ length: 40_000 }, (_, n) => n)],
  'distinct among 3,000 objects': [{ uniqueItems: true }, Array.from({ length: 3_000 }, (_, n) => ({ n }))],
  'a list of 50,000 numbers': [
    { items: { type: 'integer', minimum: 0 } },
    Array.from({ length: 50_000 }, (_, n) => n),
  ],
  'a list of 200,000 faults': [{ contains: { type: 'string' } }, Array.from({ length: 200_000 }, () => 1)],
  '10,000 properties': [
    {
      properties: Object.fromEntries(Array.from({ length: 10_000 }, (_, n) => [`p${n}`, { type: 'string' }])),
    },
    {},
  ],
  '30,000 properties': [
    { properties: Object.fromEntries(Array.from({ length: 30_000 }, (_, n) => [`p${n}`, {}])) },
    {},
  ],
  '900 branches on each of 1,000 items': [
    { items: { anyOf: branches(900) } },
    Array.from({ length: 1_000 }, () => ({})),
  ],
  '2,000 branches': [{ anyOf: branches(2_000) }, {}],
  'nested 60 deep': [nested(60, inner => ({ items: inner })), 1],
  'nested 1,000 deep': [nested(1_000, inner => ({ items: inner })), 1],
  'not, 60 deep': [nested(60, inner => ({ not: inner })), 1],
  'an enumeration of 100,000': [{ enum: Array.from({ length: 100_000 }, (_, n) => n) }, 'x'],
  'names of the prototype': [{ required: ['constructor', 'toString', 'hasOwnProperty'] }, {}],
  'a property __proto__': [JSON.parse('{"properties":{"__proto__":{"type":"string"}}}'), {}],
  'a format toString': [{ format: 'toString' }, 'x'],
  'a format __proto__': [{ format: '__proto__' }, 'x'],
  'internals of the validator': [{ __absolute_ref__: 'x', __absolute_uri__: 'y', $ref: '#' }, 1],
  'properties that are a list': [{ properties: [1] }, {}],
  'a type that is a number': [{ type: 5 }, {}],
  'an empty list of types': [{ type: [] }, {}],
  'a schema that is a list': [[], {}],
  'a schema that is null': [null, {}],
  'a schema that is text': ['{"type":"string"}', 'x'],
  'required that is text': [{ required: 'a' }, {}],
  'minimum that is text': [{ minimum: '0' }, 1],
  'items that are text': [{ items: 'x' }, [1]],
  'multiples of almost nothing': [{ multipleOf: 5e-324 }, 1e308],
  'multiples of nothing': [{ multipleOf: 0 }, 1],
  'an e-mail of 300,000 characters': [{ format: 'email' }, `${'a'.repeat(150_000)}@${'b.'.repeat(75_000)}`],
  'a URI of 300,000 characters': [{ format: 'uri' }, `http://${'a/'.repeat(150_000)}\n`],
  'a host name of 300,000 characters': [{ format: 'hostname' }, 'a-'.repeat(150_000)],
  'an address of 100,000 colons': [{ format: 'ipv6' }, ':'.repeat(100_000)],
  'a date-time of digits': [{ format: 'date-time' }, '1'.repeat(100_000)],
  'dependencies among thousands': [
    {
      dependentRequired: Object.fromEntries(
        Array.from({ length: 5_000 }, (_, n) => [`p${n}`, [`p${n + 1}`]]),
      ),
    },
    Object.fromEntries(Array.from({ length: 5_000 }, (_, n) => [`p${n}`, n])),
  ],
  'unevaluated under branches': [
    { anyOf: branches(200), unevaluatedProperties: false },
    Object.fromEntries(Array.from({ length: 200 }, (_, n) => [`k${n}`, n])),
  ],
}

/** More than two hundred. */
function hostileSchemas(): HostileSchema[] {
  const byPattern = PATTERNS.flatMap(pattern =>
    VALUES.flatMap((value, n): HostileSchema[] => [
      {
        name: `pattern ${pattern.slice(0, 40)} on value ${n}`,
        schema: { type: 'string', pattern },
        text: JSON.stringify(value),
      },
      {
        name: `pattern ${pattern.slice(0, 40)} in a list on value ${n}`,
        schema: { items: { anyOf: [{ pattern }, { type: 'number' }] } },
        text: JSON.stringify([value.slice(0, 5_000), 1, 'a']),
      },
    ]),
  )
  const byStructure = Object.entries(STRUCTURES).map(
    ([name, [schema, value]]): HostileSchema => ({
      name,
      schema,
      text: JSON.stringify(value),
    }),
  )
  const deepValue: HostileSchema = {
    name: 'a value 100,000 deep compared with itself',
    schema: { uniqueItems: true },
    text: `[${'['.repeat(100_000)}${']'.repeat(100_000)},${'['.repeat(100_000)}${']'.repeat(100_000)}]`,
  }
  return [...byPattern, ...byStructure, deepValue]
}

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
