/** The contract of the usage ledger. */
import type { Test } from 'tap'
import { lineOf } from '../../../src/storage/spool/usage-line.ts'
import type { UsageRecord } from '../../../src/storage/usage.ts'
import type { Opened } from '../contract.ts'
import { ODD_IDS, ODD_TEXT, someKey } from '../records.ts'
import { someUsage } from '../usage.ts'

const HASH = 'f'.repeat(64)

export async function ledgerContract(t: Test, opened: Opened): Promise<void> {
  await t.test('a scan reads all organizations since a time, each record once', async t => {
    const { ledger } = await opened(t)
    const times = ['2026-01-01T00:00:00.000Z', '2026-01-02T00:00:00.000Z', '2026-01-02T00:00:01.000Z']
    const records = ['org_1', 'org_2', 'org_3'].flatMap(organizationId =>
      times.flatMap(createdAt => [
        someUsage({ organizationId, createdAt }),
        someUsage({ organizationId, createdAt }),
      ]),
    )
    const route = someUsage({ createdAt: times[2] as string, requestedModel: 'prod/chat' })
    await ledger.add([...records, route])
    const scanned: UsageRecord[] = []
    await ledger.scan('2026-01-02T00:00:00.000Z', some => void scanned.push(...some))
    const expected = [...records, route].filter(({ createdAt }) => createdAt > '2026-01-01T12')
    const ids = (of: readonly UsageRecord[]) => of.map(({ id }) => id).sort()
    t.same(ids(scanned), ids(expected))
    t.equal(scanned.find(({ id }) => id === route.id)?.requestedModel, 'prod/chat')
  })

  await t.test('a usage record comes back as it was added, to its own organization only', async t => {
    const { ledger } = await opened(t)
    const plain = someUsage({
      model: null,
      provider: null,
      providerName: null,
      workspaceId: null,
      attempts: [],
    })
    const full = someUsage({
      endUser: ODD_TEXT,
      reasoningTokens: 1e12,
      isByok: true,
      upstreamId: 'resp_1',
      cancelled: true,
      cost: Number.MAX_SAFE_INTEGER,
      inputTokens: 1e12,
      latencyMs: 1234.567,
      generationMs: null,
    })
    t.equal(await ledger.add([plain, full]), 2)
    t.same(await ledger.find(plain.id, plain.organizationId), plain)
    t.same(await ledger.find(full.id, full.organizationId), full)
    t.equal(await ledger.find(full.id, 'org_2'), null)
    for (const id of ODD_IDS) t.equal(await ledger.find(id, 'org_1'), null)
  })

  await t.test(
    'the day of a provider is the sum over all organizations, without own credentials',
    async t => {
      const { ledger } = await opened(t)
      const createdAt = '2026-03-04T23:59:59.999Z'
      const of = (fields: object) => someUsage({ createdAt, provider: 'acme', cost: 5, ...fields })
      await ledger.add([
        of({ organizationId: 'org_1' }),
        of({ organizationId: 'org_2', endUser: 'somebody' }),
        of({ organizationId: 'service', model: 'acme/other' }),
        of({ organizationId: 'org_2', isByok: true }),
        of({ provider: 'other' }),
        of({ createdAt: '2026-03-05T00:00:00.000Z' }),
      ])
      const byModel = (await ledger.providerDay('acme', '2026-03-04')).map(({ model, requests, cost }) => [
        model,
        requests,
        cost,
      ])
      t.same(byModel.sort(), [
        ['acme/fast-1', 3, 10n],
        ['acme/other', 1, 5n],
      ])
      t.same(await ledger.providerDay('acme', '2026-03-03'), [])
    },
  )

  await t.test('a record that is shipped again changes nothing, within a batch and between them', async t => {
    const { ledger } = await opened(t)
    const [one, two] = [someUsage({ cost: 1 }), someUsage({ cost: 2 })]
    t.equal(await ledger.add([one, one, two]), 2)
    t.equal(await ledger.add([{ ...one, cost: 100 }, two]), 0)
    t.same(await ledger.find(one.id, 'org_1'), one)
    t.equal(await ledger.add([]), 0)
    t.match(await ledger.usageSince({ organizationId: 'org_1', since: '' }), { requests: 2, cost: 3n })
  })

  await t.test('lines of the spool arrive as the records they tell, once, in whatever order', async t => {
    const { ledger } = await opened(t)
    const records = [
      someUsage({ endUser: ODD_TEXT, reasoningTokens: 3, isByok: true, memberId: 'member', cost: 7 }),
      someUsage({ model: null, provider: null, providerName: null, workspaceId: null, attempts: [] }),
      someUsage({
        upstreamId: 'x',
        latencyMs: 1234.567,
        cost: Number.MAX_SAFE_INTEGER,
        router: 'gateway/auto',
        requestedModel: 'acme/such',
      }),
    ]
    const lines = records.map(record => `${lineOf(record)}\n`)
    const [one = '', ...more] = lines
    t.same(await ledger.addLines(''), { added: 0, invalidLines: 0 })
    t.same(await ledger.addLines(one), { added: 1, invalidLines: 0 })
    t.same(await ledger.addLines([...more, one, ...more].join('')), { added: 2, invalidLines: 0 })
    t.same(await ledger.addLines(lines.join('')), { added: 0, invalidLines: 0 })
    for (const record of records) t.same(await ledger.find(record.id, 'org_1'), record)
    t.match(await ledger.usageSince({ organizationId: 'org_1', since: '' }), {
      requests: 3,
      cost: BigInt(Number.MAX_SAFE_INTEGER) + 9_000_007n,
      byokCost: 7n,
    })
    t.match(await ledger.usageSince({ organizationId: 'org_1', since: '', memberId: 'member' }), {
      requests: 1,
    })
  })

  await t.test('lines that are no records are left out, and the others arrive', async t => {
    const { ledger } = await opened(t)
    const [one, two, three] = [someUsage(), someUsage(), someUsage({ cost: 1 })]
    const torn = lineOf(someUsage()).slice(0, 100)
    const text = `${lineOf(one)}\n\n${torn}\n${JSON.stringify(two)}\n{}\n5\n${JSON.stringify({ ...one, id: 'gen-x', cost: 0.5 })}\n${lineOf(three)}\n`
    t.same(await ledger.addLines(text), { added: 3, invalidLines: 4 })
    t.same(await ledger.addLines(text), { added: 0, invalidLines: 4 })
    for (const record of [one, two, three]) t.same(await ledger.find(record.id, 'org_1'), record)
    t.match(await ledger.usageSince({ organizationId: 'org_1', since: '' }), { requests: 3 })
    t.same(await ledger.addLines(`\n${lineOf(someUsage())}\n\n\n${lineOf(someUsage())}\n`), {
      added: 2,
      invalidLines: 0,
    })
  })

  await t.test('a record of a field that this version does not know keeps it', async t => {
    const { ledger } = await opened(t)
    const record = { ...someUsage(), tomorrow: [1, 'x'] }
    await ledger.addLines(JSON.stringify(record))
    t.same(await ledger.find(record.id, 'org_1'), record)
  })

  await t.test('totals tell texts apart from none', async t => {
    const { ledger } = await opened(t)
    await ledger.add([
      someUsage({ endUser: null, cost: 1 }),
      someUsage({ endUser: 'null', cost: 2 }),
      someUsage({ endUser: '', cost: 4 }),
      someUsage({ endUser: '=', cost: 8 }),
    ])
    const filter = {
      organizationId: 'org_1',
      since: '2026-01-01T00:00:00.000Z',
      until: '2026-01-02T00:00:00.000Z',
      byWorkspace: false,
    }
    for (const [endUser, cost] of [
      ['null', 2n],
      ['=', 8n],
    ] as const) {
      t.match(await ledger.activity({ ...filter, endUser }), [{ requests: 1, cost }])
    }
    t.match(await ledger.activity(filter), [{ requests: 4, cost: 15n }])
  })

  await t.test('records that name a session or an agent are summed by it', async t => {
    const { ledger } = await opened(t)
    const of = (sessionId: string | null, more: object = {}) =>
      someUsage({ sessionId, cost: 5, inputTokens: 10, cachedTokens: 4, cacheWriteTokens: 2, ...more })
    const records = [
      ...Array.from({ length: 1_200 }, () => of('s1', { agent: 'a1' })),
      of('s2', { agent: 'a1', isByok: true }),
      of('s2', { keyHash: HASH }),
      of(null),
      of('s3', { organizationId: 'org_2' }),
      of('s4', { createdAt: '2020-01-01T00:00:00.000Z' }),
    ]
    await ledger.add(records.slice(0, 600))
    await ledger.addLines(
      records
        .slice(600)
        .map(record => `${lineOf(record)}\n`)
        .join(''),
    )
    const filter = {
      organizationId: 'org_1',
      since: '2021-01-01T00:00:00.000Z',
      until: '2100-01-01T00:00:00.000Z',
    }
    const sessions = await ledger.clientActivity({ ...filter, by: 'sessionId' })
    t.match(sessions, [
      { name: 's1', requests: 1_200, cost: 6_000n, byokCost: 0n, inputTokens: 12_000n },
      { name: 's2', requests: 2, cost: 10n, byokCost: 5n, cacheReadTokens: 8n, cacheWriteTokens: 4n },
    ])
    t.equal(sessions?.length, 2)
    const agents = await ledger.clientActivity({ ...filter, by: 'agent' })
    t.match(agents, [{ name: 'a1', requests: 1_201, cacheReadTokens: 4_804n }])
    const own = await ledger.clientActivity({ ...filter, by: 'sessionId', keyHash: HASH })
    t.match(own, [{ name: 's2', requests: 1 }])
    for (const record of records.slice(1_199))
      t.same(await ledger.find(record.id, record.organizationId), record)
  })

  await t.test('of many who ship the same records at once each record is kept once', async t => {
    const { ledger } = await opened(t)
    const records = Array.from({ length: 450 }, () => someUsage())
    const lines = records.map(record => `${lineOf(record)}\n`).join('')
    const added = await Promise.all(
      Array.from({ length: 6 }, async (_, at) =>
        at % 2 === 0 ? ledger.add(records) : (await ledger.addLines(lines)).added,
      ),
    )
    t.equal(
      added.reduce((sum, count) => sum + count),
      records.length,
    )
    t.equal((await ledger.usageSince({ organizationId: 'org_1', since: '' })).requests, records.length)
  })

  await t.test('sums are exact beyond what a number holds, and keep to their filter', async t => {
    const { ledger } = await opened(t)
    const large = { cost: Number.MAX_SAFE_INTEGER, inputTokens: 1e12, outputTokens: 3 }
    await ledger.add([
      // Together more than 64 bits hold.
      ...Array.from({ length: 2_000 }, () => someUsage(large)),
      someUsage({ cost: 7, inputTokens: 1, outputTokens: 2, endUser: 'u1', workspaceId: 'ws_2' }),
      someUsage({ cost: 5, inputTokens: 1, outputTokens: 2, endUser: 'u2', keyHash: HASH }),
      someUsage({ cost: 3, inputTokens: 1, outputTokens: 2, createdAt: '2025-12-31T23:59:59.000Z' }),
      someUsage({ cost: 11, organizationId: 'org_2' }),
    ])
    const organizationId = 'org_1'
    t.same(await ledger.usageSince({ organizationId, since: '2026-01-01T00:00:00.000Z' }), {
      requests: 2_002,
      inputTokens: 2_000n * 1_000_000_000_000n + 2n,
      outputTokens: 6_004n,
      cost: 2_000n * BigInt(Number.MAX_SAFE_INTEGER) + 12n,
      byokCost: 0n,
    })
    t.match(await ledger.usageSince({ organizationId, since: '' }), { requests: 2_003 })
    t.match(await ledger.usageSince({ organizationId: 'org_2', since: '' }), { requests: 1, cost: 11n })
    t.match(await ledger.usageSince({ organizationId, since: '', keyHash: HASH }), { cost: 5n })
    t.match(await ledger.usageSince({ organizationId: 'org_3', since: '' }), { requests: 0, cost: 0n })
  })

  await t.test('what ran on own credentials is summed apart, beyond 64 bits too', async t => {
    const { ledger } = await opened(t)
    const own = { isByok: true, cost: Number.MAX_SAFE_INTEGER }
    await ledger.add(Array.from({ length: 2_000 }, () => someUsage(own)))
    await ledger.add([someUsage({ cost: 5 }), someUsage({ cost: 7, isByok: true })])
    const byokCost = 2_000n * BigInt(Number.MAX_SAFE_INTEGER) + 7n
    t.match(await ledger.usageSince({ organizationId: 'org_1', since: '' }), {
      cost: byokCost + 5n,
      byokCost,
    })
  })

  await t.test('sums by member hold all keys of the member, those that are gone included', async t => {
    const { keys, ledger } = await opened(t)
    const one = someKey({ creatorUserId: 'm' })
    await keys.add(one)
    const [mine, others] = [{ memberId: 'm' }, { memberId: 'n' }]
    const used = [
      someUsage({ ...mine, keyHash: one.hash, cost: 1 }),
      someUsage({ ...mine, cost: 2, workspaceId: 'ws_2', isByok: true }),
      someUsage({ ...others, cost: 4 }),
      someUsage({ keyHash: HASH, cost: 8 }),
      someUsage({ ...mine, keyHash: one.hash, cost: 16, createdAt: '2025-12-31T23:59:59.000Z' }),
      // As many as go in one statement, and the rest.
      ...Array.from({ length: 70 }, () => someUsage({ ...mine, cost: 32 })),
    ]
    await ledger.add(used)
    await keys.remove('org_1', one.hash)
    const member = { organizationId: 'org_1', memberId: 'm' }
    const since = '2026-01-01T00:00:00.000Z'
    t.match(await ledger.usageSince({ ...member, since }), { requests: 72, cost: 2_243n, byokCost: 2n })
    t.match(await ledger.usageSince({ ...member, since: '' }), { cost: 2_259n })
    t.match(await ledger.usageSince({ ...member, since, workspaceId: 'ws_1' }), { cost: 2_241n })
    t.match(await ledger.usageSince({ ...member, since, memberId: 'n' }), { requests: 1, cost: 4n })
    t.match(await ledger.usageSince({ ...member, since, organizationId: 'org_2' }), { requests: 0 })
    for (const record of used.slice(0, 4)) t.same(await ledger.find(record.id, 'org_1'), record)
  })

  await t.test('what a removed key used stays in the ledger', async t => {
    const { keys, ledger } = await opened(t)
    const key = someKey()
    await keys.add(key)
    const record = someUsage({ keyHash: key.hash, cost: 5 })
    await ledger.add([record])
    await keys.remove('org_1', key.hash)
    t.same(await ledger.find(record.id, 'org_1'), record)
    const filter = { organizationId: 'org_1', since: '', keyHash: key.hash }
    t.match(await ledger.usageSince(filter), { requests: 1, cost: 5n })
  })

  await t.test('instances that add to the same totals at once lose nothing', async t => {
    const { ledger } = await opened(t)
    const keys = Array.from({ length: 12 }, (_, at) => at.toString(16).repeat(64))
    const batches = Array.from({ length: 8 }, (_, batch) =>
      // Each in another order, which is where two of them could wait for each other.
      keys.map((_, at) => someUsage({ keyHash: keys[(at * 5 + batch) % 12] ?? '', memberId: 'm', cost: 3 })),
    )
    await Promise.all(batches.map(batch => ledger.add(batch)))
    const since = ''
    t.match(await ledger.usageSince({ organizationId: 'org_1', since }), { requests: 96, cost: 288n })
    t.match(await ledger.usageSince({ organizationId: 'org_1', since, memberId: 'm' }), { cost: 288n })
    for (const keyHash of keys) {
      t.match(await ledger.usageSince({ organizationId: 'org_1', since, keyHash }), {
        requests: 8,
        cost: 24n,
      })
    }
  })

  await t.test('records of before a time are removed in bounds, and their sums stay', async t => {
    const { ledger } = await opened(t)
    const on = (createdAt: string, fields = {}) => someUsage({ createdAt, cost: 5, ...fields })
    const old = [
      ...Array.from({ length: 5 }, () => on('2025-01-01T10:00:00.000Z')),
      on('2025-01-02T10:00:00.000Z', { organizationId: 'org_2' }),
    ]
    const kept = [on('2025-01-03T00:00:00.000Z'), on('2026-01-01T10:00:00.000Z')]
    await ledger.add([...old, ...kept])
    const filter = { organizationId: 'org_1', since: '' }
    const before = await ledger.usageSince(filter)
    const days = { organizationId: 'org_1', since: '', until: '2027-01-01', byWorkspace: true }
    const activity = await ledger.activity(days)
    const cutoff = '2025-01-03T00:00:00.000Z'
    t.equal(await ledger.prune(cutoff, 3), 3)
    t.equal(await ledger.prune(cutoff, 100), 3, 'of every organization')
    t.equal(await ledger.prune(cutoff, 100), 0)
    for (const { id, organizationId } of old) t.equal(await ledger.find(id, organizationId), null)
    for (const record of kept) t.same(await ledger.find(record.id, 'org_1'), record)
    t.same(await ledger.usageSince(filter), before)
    t.match(before, { requests: 7, cost: 35n })
    t.same(await ledger.activity(days), activity)
    t.match(await ledger.usageSince({ organizationId: 'org_2', since: '' }), { cost: 5n })
  })

  await t.test('of requests for which nobody was asked each workspace keeps its newest records', async t => {
    const { ledger } = await opened(t)
    const at = (minute: number) => new Date(Date.UTC(2026, 0, 1, 0, minute)).toISOString()
    const failed = { outcome: 'failed', model: null, provider: null, cost: 0 } as const
    const asked = Array.from({ length: 4 }, (_, n) => someUsage({ createdAt: at(n) }))
    const paid = someUsage({ ...failed, createdAt: at(0), cost: 7 })
    const unasked = (workspaceId: string | null, organizationId: string, count: number) =>
      Array.from({ length: count }, (_, n) =>
        someUsage({ ...failed, createdAt: at(n), workspaceId, organizationId }),
      )
    const many = unasked('ws_1', 'org_1', 6)
    const few = unasked('ws_2', 'org_1', 2)
    const none = unasked(null, 'org_1', 5)
    const others = unasked('ws_1', 'org_2', 4)
    await ledger.add([...asked, paid, ...many, ...few, ...none, ...others])
    const filter = { organizationId: 'org_1', since: '' }
    const before = await ledger.usageSince(filter)
    t.equal(await ledger.pruneUnasked(2, 5), 5, 'no more than allowed at once')
    t.equal(await ledger.pruneUnasked(2, 100), 4)
    t.equal(await ledger.pruneUnasked(2, 100), 0)
    for (const [list, organizationId] of [
      [many, 'org_1'],
      [few, 'org_1'],
      [none, 'org_1'],
      [others, 'org_2'],
    ] as const) {
      const found = await Promise.all(list.map(({ id }) => ledger.find(id, organizationId)))
      t.same(
        found.map(record => record !== null),
        list.map((_, n) => n >= list.length - 2),
      )
    }
    for (const record of [...asked, paid]) t.same(await ledger.find(record.id, 'org_1'), record)
    t.same(await ledger.usageSince(filter), before, 'their sums stay')
  })

  await t.test('the latest records come newest first, page by page, of a key or of all', async t => {
    const { ledger } = await opened(t)
    const records = Array.from({ length: 7 }, (_, at) =>
      // Three share a time.
      someUsage({
        createdAt: `2026-01-0${Math.min(at, 4) + 1}T00:00:00.000Z`,
        ...(at % 2 === 0 ? {} : { keyHash: HASH }),
      }),
    )
    await ledger.add([...records, someUsage({ organizationId: 'org_2' })])
    const order = records.toSorted((a, b) => (a.createdAt + a.id < b.createdAt + b.id ? 1 : -1))
    const organizationId = 'org_1'
    t.same(await ledger.latest({ organizationId }, 100), order)
    for (const [at, before] of order.entries()) {
      t.same(await ledger.latest({ organizationId, before }, 2), order.slice(at + 1, at + 3))
    }
    const ofKey = order.filter(({ keyHash }) => keyHash === HASH)
    t.equal(ofKey.length, 3)
    t.same(await ledger.latest({ organizationId, keyHash: HASH }, 100), ofKey)
    for (const organizationId of ODD_IDS) t.same(await ledger.latest({ organizationId }, 10), [])
  })

  await t.test('activity has a row for each UTC day, model and provider, newest day first', async t => {
    const { ledger } = await opened(t)
    const on = (time: string, fields = {}) =>
      someUsage({ createdAt: time, inputTokens: 1, outputTokens: 2, reasoningTokens: 4, cost: 8, ...fields })
    await ledger.add([
      on('2026-01-01T23:59:59.999Z'),
      on('2026-01-02T00:00:00.000Z'),
      on('2026-01-02T12:00:00.000Z', { isByok: true, cost: Number.MAX_SAFE_INTEGER }),
      on('2026-01-02T13:00:00.000Z', { workspaceId: 'ws_2' }),
      on('2026-01-02T14:00:00.000Z', { workspaceId: null }),
      on('2026-01-02T15:00:00.000Z', { provider: 'zeta' }),
      on('2026-01-02T16:00:00.000Z', { model: 'acme/a', cost: 0 }),
      on('2026-01-02T17:00:00.000Z', { model: null, provider: null, endUser: ODD_TEXT, keyHash: HASH }),
      on('2026-01-02T18:00:00.000Z', { organizationId: 'org_2' }),
      on('2026-01-03T00:00:00.000Z'),
    ])
    const days = { organizationId: 'org_1', since: '2026-01-01', until: '2026-01-03', byWorkspace: false }
    const sums = (requests: number) => ({
      workspaceId: null,
      requests,
      inputTokens: BigInt(requests),
      outputTokens: BigInt(2 * requests),
      reasoningTokens: BigInt(4 * requests),
      cost: BigInt(8 * requests),
      byokCost: 0n,
    })
    const [first, second] = [{ date: '2026-01-01' }, { date: '2026-01-02' }]
    const fast = { model: 'acme/fast-1', provider: 'acme' }
    const own = BigInt(Number.MAX_SAFE_INTEGER)
    const none = { ...second, model: null, provider: null, ...sums(1) }
    const others = [
      { ...second, model: 'acme/fast-1', provider: 'zeta', ...sums(1) },
      { ...first, ...fast, ...sums(1) },
    ]
    t.same(await ledger.activity(days), [
      none,
      { ...second, model: 'acme/a', provider: 'acme', ...sums(1), cost: 0n },
      { ...second, ...fast, ...sums(4), cost: own + 24n, byokCost: own },
      ...others,
    ])
    const apart = await ledger.activity({ ...days, byWorkspace: true })
    t.same(
      apart
        .filter(row => row.date === '2026-01-02' && row.provider === 'acme' && row.model === fast.model)
        .map(row => [row.workspaceId, row.requests]),
      [
        [null, 1],
        ['ws_1', 2],
        ['ws_2', 1],
      ],
    )
    t.same(await ledger.activity({ ...days, endUser: ODD_TEXT }), [none])
    t.same(await ledger.activity({ ...days, keyHash: HASH }), [none])
    t.same(await ledger.activity({ ...days, workspaceId: 'ws_2' }), [{ ...second, ...fast, ...sums(1) }])
    t.same(await ledger.activity({ ...days, until: '2026-01-01' }), [], 'the end is exclusive')
    t.same(await ledger.activity({ ...days, endUser: ODD_TEXT, keyHash: HASH }), [none])
    t.same(await ledger.activity({ ...days, endUser: ODD_TEXT, keyHash: 'a'.repeat(64) }), [])
    t.equal((await ledger.activity({ ...days, since: '' })).length, 5)
    t.equal((await ledger.activity({ ...days, since: '2026-01-02' })).length, 4)
    for (const organizationId of ODD_IDS) t.same(await ledger.activity({ ...days, organizationId }), [])
  })
}
