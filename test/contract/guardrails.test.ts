/** /guardrails: what a guardrail may be made of, what is shown of it, how it changes. */
import { randomUUID } from 'node:crypto'
import { DatabaseSync } from 'node:sqlite'
import t, { type Test } from 'tap'
import { sqlitePath } from '../../src/storage/data-folder.ts'
import { type Answered, addOrganization, caller } from '../support/management.ts'
import { startManagedGateway } from '../support/world.ts'

const published: object[] = []
const { clock, gateway, store } = await startManagedGateway(t, {
  providers: [{ slug: 'own-server', format: 'openai-chat', baseUrl: 'http://127.0.0.1:1/v1' }],
  publish: change => void published.push(change),
})
const other = await addOrganization(gateway.storageUrl, 'org_other')
const ask = caller(gateway.url, gateway.managementKey)
const create = (fields: object = {}) => ask('POST', '/guardrails', { name: 'made', ...fields })
async function made(t: Test, fields: object = {}): Promise<Record<string, unknown> & { id: string }> {
  const { status, data, text } = await create(fields)
  t.equal(status, 201, text)
  return data as Record<string, unknown> & { id: string }
}
const many = <T>(count: number, make: (at: number) => T) => Array.from({ length: count }, (_, at) => make(at))
const total = async () => (await ask('GET', '/guardrails?limit=1')).document['total_count']
const NOW = '2026-07-16T12:00:00.000Z'
const WORD = { pattern: 'x', action: 'flag' }
const EMAIL = { slug: 'email', action: 'redact' }

t.test('a minimal guardrail has every field, with its default', async t => {
  published.length = 0
  const { status, document, data } = await create()
  t.equal(status, 201)
  t.same(Object.keys(document), ['data'])
  const { id, ...rest } = data
  t.match(id, /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/)
  t.same(rest, {
    name: 'made',
    description: null,
    workspace_id: null,
    is_workspace_default: false,
    assigned: 0,
    limit_usd: null,
    reset_interval: null,
    include_byok_in_budgets: false,
    allowed_models: null,
    ignored_models: null,
    allowed_providers: null,
    ignored_providers: null,
    enforce_zdr: null,
    enforce_zdr_anthropic: null,
    enforce_zdr_openai: null,
    enforce_zdr_google: null,
    enforce_zdr_xai: null,
    enforce_zdr_other: null,
    enable_free_model_training: null,
    enable_free_model_publication: null,
    enable_paid_model_training: null,
    allowed_data_regions: null,
    content_filter_builtins: null,
    content_filters: null,
    output: null,
    fail_mode: 'closed',
    created_at: NOW,
    updated_at: NOW,
  })
  t.same((await ask('GET', `/guardrails/${id}`)).document, document)
  t.same(published, [{ kind: 'guardrails', organizationId: 'org_default' }])
})

const SET = {
  name: 'Team Ä 😀',
  description: 'two\nlines',
  limit_usd: 12.345678,
  reset_interval: 'weekly',
  include_byok_in_budgets: true,
  allowed_models: ['acme/fast-1', '~acme/fast-latest'],
  ignored_models: ['acme/fast-1:free'],
  allowed_providers: ['groq', 'own-server'],
  ignored_providers: ['z-ai'],
  enforce_zdr_anthropic: true,
  enforce_zdr_openai: false,
  enforce_zdr_google: null,
  enforce_zdr_xai: true,
  enforce_zdr_other: false,
  enable_free_model_training: false,
  enable_free_model_publication: true,
  enable_paid_model_training: false,
  allowed_data_regions: ['europe', 'us'],
  content_filter_builtins: [
    { slug: 'email', action: 'redact', label: '[EMAIL]' },
    { slug: 'regex-prompt-injection', action: 'block', label: '[PROMPT_INJECTION]', scan_scope: 'user_only' },
  ],
  content_filters: [
    { pattern: '\\bsk-[a-zA-Z0-9]{48}\\b', action: 'redact', label: '[API_KEY]' },
    { pattern: '(?i)nüll', action: 'flag', label: null },
  ],
  output: {
    content_filter_builtins: [{ slug: 'secrets', action: 'redact', label: '[SECRET]' }],
    content_filters: [{ pattern: 'canary', action: 'block', label: 'canary' }],
    window_bytes: 4096,
    overlap_bytes: 0,
  },
  fail_mode: 'open',
}

t.test('what is set is kept, and what was read can be sent again', async t => {
  const data = await made(t, { ...SET, workspace_id: 'ws_default' })
  t.match(data, { ...SET, workspace_id: 'ws_default', enforce_zdr: null })
  t.same((await ask('GET', `/guardrails/${data.id}`)).data, data)
  published.length = 0
  const again = await ask('PATCH', `/guardrails/${data.id}`, SET)
  t.same(again.data, data)
  t.same(published, [], 'nothing was changed')
})

t.test('everything at its bound is taken', async t => {
  for (const [name, fields, shown] of [
    ['a name of 200 characters', { name: '😀'.repeat(200) }],
    ['a description of 1000', { description: '😀'.repeat(1000) }],
    ['an empty description', { description: '' }],
    ['a limit of nothing', { limit_usd: 0, reset_interval: 'daily' }],
    ['the largest limit', { limit_usd: 1e9, reset_interval: 'monthly' }],
    ['both null', { limit_usd: null, reset_interval: null }],
    ['1000 models', { allowed_models: many(1000, at => `acme/model-${at}`) }],
    ['a model twice', { ignored_models: ['acme/a', 'acme/a'] }, { ignored_models: ['acme/a'] }],
    ['a provider twice', { allowed_providers: ['groq', 'groq'] }, { allowed_providers: ['groq'] }],
    ['three regions', { allowed_data_regions: ['global', 'europe', 'us'] }],
    ['no filters', { content_filters: [] }, { content_filters: null }],
    ['no detectors', { content_filter_builtins: [] }, { content_filter_builtins: null }],
    ['the widest scan said', { content_filter_builtins: [{ ...EMAIL, scan_scope: 'all_messages' }] }, {}],
    [
      'no scan said',
      { content_filter_builtins: [{ slug: 'regex-prompt-injection', action: 'flag' }] },
      { content_filter_builtins: [{ scan_scope: 'all_messages' }] },
    ],
    ['100 filters', { content_filters: many(100, at => ({ ...WORD, pattern: `w${at}`, label: null })) }],
    ['a label of 100', { content_filters: [{ ...WORD, label: '😀'.repeat(100) }] }],
    ['a pattern of 100,000', { content_filters: [{ ...WORD, pattern: 'é'.repeat(100_000), label: null }] }],
    [
      'a window of 256',
      { output: { window_bytes: 256 } },
      { output: { window_bytes: 256, overlap_bytes: 128 } },
    ],
    ['a window of 16384', { output: { window_bytes: 16384, overlap_bytes: 16383 } }],
    [
      'an empty output',
      { output: {} },
      { output: { window_bytes: 1024, overlap_bytes: 256, content_filters: null } },
    ],
    ['no fail mode', { fail_mode: null }, { fail_mode: 'closed' }],
    ['no answer about budgets', { include_byok_in_budgets: null }, { include_byok_in_budgets: false }],
    ['no workspace', { workspace_id: null }],
  ] as readonly (readonly [string, object, object?])[]) {
    t.match(await made(t, fields), shown ?? fields, name)
  }
  const slugs = [
    ['email', '[EMAIL]'],
    ['phone', '[PHONE]'],
    ['ssn', '[SSN]'],
    ['credit-card', '[CREDIT_CARD]'],
    ['ip-address', '[IP_ADDRESS]'],
    ['secrets', '[SECRET]'],
    ['person-name', '[PERSON_NAME]'],
    ['address', '[ADDRESS]'],
    ['regex-prompt-injection', '[PROMPT_INJECTION]'],
  ].map(([slug, label]) => ({ slug, action: 'block', label }))
  const output = { content_filter_builtins: slugs }
  const data = await made(t, { content_filter_builtins: slugs, output })
  t.match(data, { content_filter_builtins: slugs, output })
})

t.test('the older field for retention stands for the vendors that are not named', async t => {
  const zdr = (data: Record<string, unknown>) =>
    ['anthropic', 'openai', 'google', 'xai', 'other'].map(vendor => data[`enforce_zdr_${vendor}`])
  const all = await made(t, { enforce_zdr: true })
  t.same([all['enforce_zdr'], ...zdr(all)], [true, true, true, true, true, true])
  const but = await made(t, { enforce_zdr: true, enforce_zdr_openai: false, enforce_zdr_xai: null })
  t.same([but['enforce_zdr'], ...zdr(but)], [null, true, false, true, null, true])
  const patch = async (change: object) => (await ask('PATCH', `/guardrails/${all.id}`, change)).data
  t.same(zdr(await patch({ enforce_zdr_google: false })), [true, true, false, true, true])
  t.same(zdr(await patch({ enforce_zdr: false, enforce_zdr_other: true })), [
    false,
    false,
    false,
    false,
    true,
  ])
  const cleared = await patch({ enforce_zdr: null })
  t.same([cleared['enforce_zdr'], ...zdr(cleared)], [null, null, null, null, null, null])
})

const filter = (fields: object) => ({ content_filters: [WORD, { ...WORD, ...fields }] })
const builtin = (fields: object) => ({
  content_filter_builtins: [EMAIL, { slug: 'phone', action: 'flag', ...fields }],
})
const within = (fields: object) => ({ output: { window_bytes: 1024, ...fields } })
const OUTPUT_FILTERS = 'output.content_filters'

/** What neither a new guardrail nor a change may hold, with the field that the refusal names. */
const FIELD_RULES: readonly (readonly [name: string, fields: object, field: string])[] = [
  ['an empty name', { name: '' }, 'name'],
  ['a long name', { name: 'x'.repeat(201) }, 'name'],
  ['a name of two lines', { name: 'a\nb' }, 'name'],
  ['a name with NUL', { name: 'a\0b' }, 'name'],
  ['a name of half a character', { name: '\ud800' }, 'name'],
  ['a null name', { name: null }, 'name'],
  ['a number as name', { name: 5 }, 'name'],
  ['a long description', { description: 'x'.repeat(1001) }, 'description'],
  ['a description with NUL', { description: '\0' }, 'description'],
  ['a limit below zero', { limit_usd: -1, reset_interval: 'daily' }, 'limit_usd'],
  ['too fine a limit', { limit_usd: 0.0000001, reset_interval: 'daily' }, 'limit_usd'],
  ['too high a limit', { limit_usd: 1e9 + 1, reset_interval: 'daily' }, 'limit_usd'],
  ['a limit in words', { limit_usd: '5', reset_interval: 'daily' }, 'limit_usd'],
  ['a limit alone', { limit_usd: 5 }, 'reset_interval'],
  ['a limit without interval', { limit_usd: 5, reset_interval: null }, 'reset_interval'],
  ['an interval alone', { reset_interval: 'daily' }, 'limit_usd'],
  ['another interval', { limit_usd: 5, reset_interval: 'yearly' }, 'reset_interval'],
  ['budgets in words', { include_byok_in_budgets: 'yes' }, 'include_byok_in_budgets'],
  ['no models allowed', { allowed_models: [] }, 'allowed_models'],
  ['1001 models', { allowed_models: many(1001, at => `acme/m${at}`) }, 'allowed_models'],
  ['a model that is none', { allowed_models: ['acme/a', 'acme'] }, 'allowed_models[1]'],
  ['a model pattern', { ignored_models: ['acme/*'] }, 'ignored_models[0]'],
  ['no models ignored', { ignored_models: [] }, 'ignored_models'],
  ['a long model', { ignored_models: [`acme/${'x'.repeat(1020)}`] }, 'ignored_models[0]'],
  ['no providers allowed', { allowed_providers: [] }, 'allowed_providers'],
  ['an unknown provider', { allowed_providers: ['groq', 'nobody'] }, 'allowed_providers[1]'],
  ['an ignored one that is unknown', { ignored_providers: ['constructor'] }, 'ignored_providers[0]'],
  ['a provider that is no text', { ignored_providers: [5] }, 'ignored_providers[0]'],
  ['no providers ignored', { ignored_providers: [] }, 'ignored_providers'],
  ...['', '_anthropic', '_openai', '_google', '_xai', '_other'].map(
    vendor =>
      [`retention${vendor} in words`, { [`enforce_zdr${vendor}`]: 'true' }, `enforce_zdr${vendor}`] as const,
  ),
  ...['enable_free_model_training', 'enable_free_model_publication', 'enable_paid_model_training'].map(
    field => [`${field} as a number`, { [field]: 1 }, field] as const,
  ),
  ['no regions', { allowed_data_regions: [] }, 'allowed_data_regions'],
  ['an unknown region', { allowed_data_regions: ['europe', 'mars'] }, 'allowed_data_regions[1]'],
  ['one region as text', { allowed_data_regions: 'europe' }, 'allowed_data_regions'],
  ['an unknown detector', builtin({ slug: 'iban' }), 'content_filter_builtins[1].slug'],
  ['an inherited detector', builtin({ slug: 'constructor' }), 'content_filter_builtins[1].slug'],
  ['a detector twice', builtin({ slug: 'email' }), 'content_filter_builtins[1].slug'],
  ['a detector without action', builtin({ action: undefined }), 'content_filter_builtins[1].action'],
  ['an unknown action', builtin({ action: 'delete' }), 'content_filter_builtins[1].action'],
  ['an unknown scan', builtin({ scan_scope: 'system' }), 'content_filter_builtins[1].scan_scope'],
  ['a scan that it cannot do', builtin({ scan_scope: 'user_only' }), 'content_filter_builtins[1].scan_scope'],
  ['an unknown field of a detector', builtin({ colour: 1 }), 'content_filter_builtins[1].colour'],
  ['a detector as text', { content_filter_builtins: ['email'] }, 'content_filter_builtins[0]'],
  ['ten detectors', { content_filter_builtins: many(10, () => EMAIL) }, 'content_filter_builtins'],
  ['no pattern', filter({ pattern: undefined }), 'content_filters[1].pattern'],
  ['an empty pattern', filter({ pattern: '' }), 'content_filters[1].pattern'],
  ['a long pattern', filter({ pattern: 'x'.repeat(100_001) }), 'content_filters[1].pattern'],
  ['a pattern with NUL', filter({ pattern: 'a\0' }), 'content_filters[1].pattern'],
  ['an unknown action of a filter', filter({ action: 'BLOCK' }), 'content_filters[1].action'],
  ['a long label', filter({ label: 'x'.repeat(101) }), 'content_filters[1].label'],
  ['an empty label', filter({ label: '' }), 'content_filters[1].label'],
  ['a label of two lines', filter({ label: 'a\nb' }), 'content_filters[1].label'],
  ['an unknown field of a filter', filter({ flags: 'i' }), 'content_filters[1].flags'],
  ['101 filters', { content_filters: many(101, () => WORD) }, 'content_filters'],
  [
    'too much to match',
    { content_filters: many(3, () => ({ ...WORD, pattern: 'x'.repeat(70_000) })) },
    'content_filters',
  ],
  [
    'too much to match on both sides',
    {
      content_filters: many(2, () => ({ ...WORD, pattern: 'x'.repeat(70_000) })),
      ...within({ content_filters: [{ ...WORD, pattern: 'x'.repeat(70_000) }] }),
    },
    OUTPUT_FILTERS,
  ],
  ['a list as output', { output: [] }, 'output'],
  ['an unknown field of the output', within({ colour: 1 }), 'output.colour'],
  ['a small window', within({ window_bytes: 255 }), 'output.window_bytes'],
  ['a large window', within({ window_bytes: 16_385 }), 'output.window_bytes'],
  ['half a byte', within({ window_bytes: 1024.5 }), 'output.window_bytes'],
  ['an overlap below zero', within({ overlap_bytes: -1 }), 'output.overlap_bytes'],
  ['an overlap of the whole window', within({ overlap_bytes: 1024 }), 'output.overlap_bytes'],
  ['an overlap of a whole default window', { output: { overlap_bytes: 1024 } }, 'output.overlap_bytes'],
  [
    'a scan of the output',
    within({ content_filter_builtins: [{ ...EMAIL, scan_scope: 'user_only' }] }),
    'output.content_filter_builtins[0].scan_scope',
  ],
  [
    'a detector twice in the output',
    within({ content_filter_builtins: [EMAIL, EMAIL] }),
    'output.content_filter_builtins[1].slug',
  ],
  [
    'an action of the output',
    within({ content_filters: [{ ...WORD, action: 'x' }] }),
    `${OUTPUT_FILTERS}[0].action`,
  ],
  ['another fail mode', { fail_mode: 'ajar' }, 'fail_mode'],
  ['an unknown field', { colour: 'red' }, 'colour'],
  ['an id', { id: randomUUID() }, 'id'],
  ['an owner', { organization_id: 'org_other' }, 'organization_id'],
  ['a mark of the default one', { is_workspace_default: true }, 'is_workspace_default'],
  ['a revision', { revision: 1 }, 'revision'],
  ['a constructor', { constructor: 1 }, 'constructor'],
]

/** Patterns that cannot be matched in linear time, or at all. */
const BAD_PATTERNS = [
  '(?=a)b',
  '(?!a)b',
  '(?<=a)b',
  '(?<!a)b',
  '(a)\\1',
  '(zz+)*',
  '[',
  '(',
  'a{2,1}',
  'a**',
  '\\',
  'a{1001}',
  '(?:(?:a{100}){100}){100}',
]

function refusedBy(t: Test, answer: Answered, field: string, name: string): void {
  t.equal(answer.status, 400, `${name}: ${answer.text.slice(0, 300)}`)
  t.ok(answer.message.startsWith(`${field}: `), `${name}: ${answer.message.slice(0, 300)}`)
  t.match(answer.document, { error: { code: 400, metadata: { error_type: 'invalid_request' } } })
}

t.test('POST refuses what does not fit, naming the field', async t => {
  const before = await total()
  published.length = 0
  for (const [name, fields, field] of [
    ...FIELD_RULES,
    ['no name', { name: undefined }, 'name'],
    ['an unknown workspace', { workspace_id: randomUUID() }, 'workspace_id'],
    ['a foreign workspace', { workspace_id: other.workspaceId }, 'workspace_id'],
    ['a slug as workspace', { workspace_id: 'default' }, 'workspace_id'],
    ['an empty workspace', { workspace_id: '' }, 'workspace_id'],
  ] as const) {
    refusedBy(t, await create(fields), field, name)
  }
  for (const body of ['', '[]', 'null', '"x"', '{', '{"name":"x","__proto__":{"a":1}}']) {
    t.equal((await ask('POST', '/guardrails', body)).status, 400, body)
  }
  t.equal(await total(), before, 'nothing was stored')
  t.same(published, [])
})

t.test('a pattern that cannot be run is refused by its place and reason, without being repeated', async t => {
  const { id } = await made(t)
  for (const pattern of BAD_PATTERNS) {
    for (const [field, fields] of [
      ['content_filters[1].pattern', filter({ pattern })],
      [`${OUTPUT_FILTERS}[0].pattern`, within({ content_filters: [{ ...WORD, pattern }] })],
    ] as const) {
      for (const answer of [await create(fields), await ask('PATCH', `/guardrails/${id}`, fields)]) {
        refusedBy(t, answer, field, pattern)
        t.match(answer.document, { error: { metadata: { code: 'invalid_regex_pattern' } } })
        if (pattern.length > 3)
          t.notOk(answer.text.includes(JSON.stringify(pattern).slice(1, -1)), answer.text)
      }
    }
  }
  for (const pattern of ['(?i)a+', '\\p{Greek}', '(?P<name>a)|b', '^a$', '😀', 'a{1000}'])
    t.ok(await made(t, filter({ pattern })), pattern)
})

t.test(
  'all patterns of a list may stand for twenty thousand characters, and the one too many is named',
  async t => {
    const { id } = await made(t)
    const list = (count: number) =>
      many(count, at => ({ ...WORD, pattern: `a{1000}${at % 10}?`, label: null }))
    for (const [field, fields] of [
      ['content_filters[19].pattern', (count: number) => ({ content_filters: list(count) })],
      [`${OUTPUT_FILTERS}[19].pattern`, (count: number) => within({ content_filters: list(count) })],
    ] as const) {
      t.ok(await made(t, fields(19)), 'nineteen thousand and nineteen')
      for (const answer of [await create(fields(20)), await ask('PATCH', `/guardrails/${id}`, fields(20))]) {
        refusedBy(t, answer, field, 'twenty thousand and twenty')
        t.match(answer.document, { error: { metadata: { code: 'invalid_regex_pattern' } } })
      }
    }
    const both = { content_filters: list(19), ...within({ content_filters: list(19) }) }
    t.ok(await made(t, both), 'each list by itself')
    const plain = many(20, at => ({ ...WORD, pattern: `${at}`.padEnd(5_000, 'x'), label: null }))
    t.ok(await made(t, { content_filters: plain }), 'plain text is searched and no automaton')
  },
)

t.test('PATCH', async t => {
  t.test('changes one field at a time, and leaves out what is left out', async t => {
    const { id, ...rest } = await made(t)
    let expected: Record<string, unknown> = { id, ...rest }
    for (const change of [
      { name: 'two' },
      { description: 'd' },
      { description: null },
      { limit_usd: 5, reset_interval: 'daily' },
      { limit_usd: 6.5 },
      { reset_interval: 'monthly' },
      { limit_usd: null, reset_interval: null },
      { include_byok_in_budgets: true },
      { allowed_models: ['acme/a'], ignored_models: ['acme/b'] },
      { allowed_models: null },
      { allowed_providers: ['groq'], ignored_providers: ['azure'] },
      { ignored_providers: null },
      { enforce_zdr_anthropic: true },
      { enable_free_model_training: false, enable_free_model_publication: false },
      { enable_paid_model_training: true },
      { enable_free_model_training: null },
      { allowed_data_regions: ['europe'] },
      { allowed_data_regions: null },
      { content_filter_builtins: SET.content_filter_builtins },
      { content_filters: SET.content_filters },
      { output: SET.output },
      { output: null, content_filters: null },
      { content_filter_builtins: null },
      { fail_mode: 'open' },
    ]) {
      clock.advance(1000)
      published.length = 0
      expected = { ...expected, ...change, updated_at: new Date(clock.nowMs()).toISOString() }
      const answer = await ask('PATCH', `/guardrails/${id}`, change)
      t.equal(answer.status, 200, answer.text)
      t.same(answer.document, { data: expected }, JSON.stringify(change))
      t.same((await ask('GET', `/guardrails/${id}`)).data, expected)
      t.same(published, [{ kind: 'guardrails', organizationId: 'org_default' }])
    }
    published.length = 0
    for (const change of [{}, { name: 'two' }, { fail_mode: 'open', allowed_models: null }])
      t.same((await ask('PATCH', `/guardrails/${id}`, change)).data, expected)
    t.same(published, [], 'what changes nothing is no change')
  })

  t.test('refuses what does not fit, naming the field, and changes nothing', async t => {
    const record = await made(t, { name: 'kept' })
    for (const [name, fields, field] of [
      ...FIELD_RULES,
      ['another workspace', { workspace_id: 'ws_default' }, 'workspace_id'],
    ] as const) {
      refusedBy(
        t,
        await ask('PATCH', `/guardrails/${record.id}`, { name: 'changed', ...fields }),
        field,
        name,
      )
    }
    t.same((await ask('GET', `/guardrails/${record.id}`)).data, record)
  })

  t.test('judges by what the guardrail would be', async t => {
    const { id } = await made(t, {
      limit_usd: 5,
      reset_interval: 'daily',
      content_filters: [{ ...WORD, pattern: 'x'.repeat(99_000) }],
    })
    for (const [change, field] of [
      [{ limit_usd: null }, 'limit_usd'],
      [{ reset_interval: null }, 'reset_interval'],
      [
        { output: { content_filters: many(2, () => ({ ...WORD, pattern: 'y'.repeat(60_000) })) } },
        OUTPUT_FILTERS,
      ],
    ] as const) {
      refusedBy(
        t,
        await ask('PATCH', `/guardrails/${id}`, change),
        field,
        JSON.stringify(change).slice(0, 60),
      )
    }
  })

  t.test('of changes at the same time each is made whole or refused with 409', async t => {
    const { id } = await made(t, { limit_usd: 5, reset_interval: 'daily' })
    // Each changes something whatever came before: a change to what is there already makes no revision.
    const changes = many(12, at => ({
      description: `change ${at}`,
      ...(at % 2 === 0
        ? { limit_usd: null, reset_interval: null }
        : { limit_usd: at, reset_interval: 'weekly' }),
    }))
    const answers = await Promise.all(changes.map(change => ask('PATCH', `/guardrails/${id}`, change)))
    for (const { status, text } of answers) t.ok([200, 409].includes(status), text)
    t.ok(answers.some(({ status }) => status === 200))
    const { limit_usd: limit, reset_interval: interval } = (await ask('GET', `/guardrails/${id}`)).data
    t.equal(limit === null, interval === null)
    const current = await store.guardrails.find('org_default', id)
    t.equal(current?.revision, 1 + answers.filter(({ status }) => status === 200).length)
  })
})

t.test('a change that was overtaken is 409', async t => {
  const { id } = await made(t)
  const database = new DatabaseSync(sqlitePath(gateway.storageUrl) ?? '', { timeout: 10_000 })
  t.teardown(() => database.close())
  database.exec('BEGIN IMMEDIATE')
  const patching = ask('PATCH', `/guardrails/${id}`, { name: 'late' })
  // It reads, and then waits to write: what is asked after it, and needs no storage, is answered before it.
  for (let turn = 0; turn < 20; turn++) t.equal((await ask('GET', '/models')).status, 200)
  database.prepare("UPDATE guardrails SET name = 'first', revision = 2 WHERE id = ?").run(id)
  published.length = 0
  database.exec('COMMIT')
  const { status, message, document } = await patching
  t.equal(status, 409)
  t.match(message, /changed by another request/)
  t.match(document, { error: { metadata: { error_type: 'precondition_failed' } } })
  t.match((await ask('GET', `/guardrails/${id}`)).data, { name: 'first' })
  t.same(published, [])
})

t.test('DELETE', async t => {
  const { id } = await made(t)
  published.length = 0
  const gone = await ask('DELETE', `/guardrails/${id}`)
  t.equal(gone.status, 200)
  t.same(gone.document, { deleted: true })
  t.same(published, [{ kind: 'guardrails', organizationId: 'org_default' }])
  for (const [method, body] of [
    ['GET', undefined],
    ['PATCH', {}],
    ['DELETE', undefined],
  ] as const)
    t.equal((await ask(method, `/guardrails/${id}`, body)).status, 404, method)
})

t.test('ids that are none are 404', async t => {
  const { id } = await made(t)
  for (const odd of [
    'x',
    randomUUID(),
    id.toUpperCase(),
    '%20',
    '__proto__',
    'assignments',
    "'or'1",
    'a'.repeat(200),
  ]) {
    for (const [method, body] of [
      ['GET', undefined],
      ['PATCH', { name: 'x' }],
      ['DELETE', undefined],
    ] as const)
      t.equal((await ask(method, `/guardrails/${odd}`, body)).status, 404, `${method} ${odd}`)
  }
})

t.test('the default guardrail of a workspace', async t => {
  const workspace = (await ask('POST', '/workspaces', { name: 'W', slug: 'w' })).data
  const path = `/guardrails?workspace_id=${String(workspace['id'])}`
  const [first, ...more] = (await ask('GET', path)).list
  t.same(more, [])
  t.match(first, {
    name: `Workspace ${String(workspace['id'])} Default`,
    workspace_id: workspace['id'],
    is_workspace_default: true,
    content_filters: null,
  })
  const one = `/guardrails/${String(first?.['id'])}`
  t.same((await ask('GET', one)).data, first)
  const change = { description: 'ours', content_filter_builtins: [{ ...EMAIL, label: '[EMAIL]' }] }
  t.match((await ask('PATCH', one, { ...change, name: first?.['name'] })).data, {
    ...first,
    ...change,
    updated_at: /./,
  })
  for (const answer of [
    await ask('PATCH', one, { name: 'mine' }),
    await ask('PATCH', one, { name: 'mine', fail_mode: 'open' }),
  ])
    refusedBy(t, answer, 'name', 'another name')
  refusedBy(t, await ask('DELETE', one), 'id', 'deleting it')
  t.match((await ask('GET', one)).data, change, 'it is still there')
  const inside = await made(t, { workspace_id: workspace['id'] })
  published.length = 0
  await ask('DELETE', `/workspaces/${String(workspace['id'])}`)
  t.match(published, [{}, { kind: 'guardrails', organizationId: 'org_default' }])
  for (const gone of [one, `/guardrails/${inside.id}`]) t.equal((await ask('GET', gone)).status, 404)
  t.same((await ask('GET', path)).document, { data: [], total_count: 0 })
  const { list } = await ask('GET', '/guardrails?workspace_id=ws_default')
  t.match(
    list.filter(each => each['is_workspace_default']),
    [{ name: 'Workspace ws_default Default' }],
  )
})

t.test('the list has all workspaces or one, oldest first, in pages', async t => {
  const workspaceId = String((await ask('POST', '/workspaces', { name: 'Lists', slug: 'lists' })).data['id'])
  const ids: unknown[] = []
  for (let at = 0; at < 3; at++) {
    clock.advance(1000)
    ids.push((await made(t, { workspace_id: workspaceId })).id)
  }
  const page = async (query: string) => (await ask('GET', `/guardrails?${query}`)).list.map(({ id }) => id)
  const place = `workspace_id=${workspaceId}`
  t.same(await page(`${place}&offset=1`), ids, 'the default one comes first')
  t.same(await page(`${place}&offset=2&limit=1`), [ids[1]])
  t.same(await page(`${place}&offset=4`), [])
  t.equal((await ask('GET', `/guardrails?${place}&limit=1`)).document['total_count'], 4)
  const everywhere = Number(await total())
  const [all, more] = [await page('limit=100'), await page('offset=100&limit=100')]
  t.equal(all.length + more.length, everywhere)
  for (const id of ids) t.ok([...all, ...more].includes(id), 'of all workspaces')
  t.notOk((await page('workspace_id=ws_default&limit=100')).includes(ids[0]))
  for (const workspace of [other.workspaceId, randomUUID(), 'default'])
    t.same((await ask('GET', `/guardrails?workspace_id=${workspace}`)).document, { data: [], total_count: 0 })
  for (const [query, field] of [
    ['limit=0', 'limit'],
    ['limit=101', 'limit'],
    ['offset=-1', 'offset'],
    ['limit=2&limit=3', 'limit'],
    ['workspace_id=', 'workspace_id'],
  ] as const)
    refusedBy(t, await ask('GET', `/guardrails?${query}`), field, query)
})

t.test('only management keys get in', async t => {
  const { id } = await made(t)
  for (const [method, path, body] of [
    ['POST', '/guardrails', { name: 'x' }],
    ['GET', '/guardrails', undefined],
    ['GET', `/guardrails/${id}`, undefined],
    ['PATCH', `/guardrails/${id}`, { name: 'x' }],
    ['DELETE', `/guardrails/${id}`, undefined],
  ] as const) {
    t.equal((await caller(gateway.url, gateway.apiKey)(method, path, body)).status, 403, `${method} ${path}`)
    for (const key of [null, `sk-gw-mgmt-${'0'.repeat(64)}`])
      t.equal((await caller(gateway.url, key)(method, path, body)).status, 401, `${method} ${path}`)
    const foreign = await caller(gateway.url, other.managementKey)(method, path, body)
    if (path !== '/guardrails') t.equal(foreign.status, 404, `${method} ${path}`)
  }
  t.match((await ask('GET', `/guardrails/${id}`)).data, { name: 'made' })
})
