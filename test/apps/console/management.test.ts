/** Management operations through the admin port: with the viewer's key alone, and to no other path. */
import t from 'tap'
import { startConsoleWorld } from '../../support/console-world.ts'
import { addOrganization } from '../../support/management.ts'
import { RawClient } from '../../support/raw-http.ts'

t.test('management operations of the page', async t => {
  const world = await startConsoleWorld(t)
  const { gateway, admin } = world
  const other = await addOrganization(world.storageUrl, 'org_other')
  const call = async (method: string, path: string, body?: unknown, key?: string | null) => {
    const reply = await admin(
      `/console/data/api/${path}`,
      {
        method,
        ...(body === undefined
          ? {}
          : { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }),
      },
      key,
    )
    const text = await reply.text()
    return {
      status: reply.status,
      headers: reply.headers,
      text,
      document: JSON.parse(text) as Record<string, unknown>,
    }
  }

  await t.test('they are those of the API, with its statuses, and audited', async t => {
    const made = await call('POST', 'keys', { name: 'Made here' })
    t.equal(made.status, 201)
    t.equal(made.headers.get('cache-control'), 'no-store')
    t.equal(made.headers.get('x-content-type-options'), 'nosniff')
    t.match(made.document, { key: /^sk-gw-v1-/, data: { name: 'Made here' } })
    const { hash } = made.document['data'] as { hash: string }
    t.equal((await call('PATCH', `keys/${hash}`, { disabled: true })).status, 200)
    t.match(await call('PATCH', `keys/${hash}`, { limit: 'much' }), { status: 400, text: /limit/ })
    t.equal((await call('DELETE', `keys/${hash}`)).status, 200)
    t.equal((await call('GET', `keys/${hash}`)).status, 404)
    const { list } = await world.manage('GET', '/audit')
    t.same(
      list.slice(0, 3).map(entry => entry['action']),
      ['key.delete', 'key.update', 'key.create'],
    )
    t.match(await call('GET', 'activity?dimensions=day,key'), { status: 200 })
    t.match(await call('GET', 'activity?dimensions=nothing'), {
      status: 400,
      text: /dimensions: must be one or more of/,
    })
  })

  await t.test('another organization has its own, and an API key none', async t => {
    const { document } = await call('GET', 'keys', undefined, other.managementKey)
    // Both are made in the same millisecond, so either may be first.
    const names = (document['data'] as { name: string }[]).map(({ name }) => name).toSorted()
    t.same(names, ['org_other inference', 'org_other management'])
    t.equal((await call('GET', 'keys', undefined, gateway.apiKey)).status, 403)
    t.equal((await call('GET', 'keys', undefined, null)).status, 401)
    const cross = await admin('/console/data/api/keys', {
      method: 'POST',
      headers: { origin: 'http://elsewhere.example', 'content-type': 'application/json' },
      body: JSON.stringify({ name: 'x' }),
    })
    t.equal(cross.status, 403)
  })

  await t.test('no other path or method of the public port is reached', async t => {
    for (const path of [
      'responses',
      'batches',
      'files',
      'captures/x/../../responses',
      'keys/..%2fresponses',
      'Keys',
      '',
    ])
      t.equal((await call('POST', path, { model: 'sim/echo', input: 'x' })).status, 404, path)
    t.equal((await call('PUT', 'keys', {})).status, 405)
    t.equal((await call('POST', 'keys', { name: 'x'.repeat(3 << 20) })).status, 413)
    for (const path of ['keys/../responses', 'keys//responses', 'keys/./x', 'keys/%2e%2e/responses']) {
      const client = new RawClient(Number(new URL(gateway.adminUrl).port))
      await client.send(
        `POST /console/data/api/${path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${world.managementKey}\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}`,
      )
      await client.untilClosed()
      t.match(client.text, /^HTTP\/1\.1 40[45] /, path)
    }
  })

  await t.test('the summary tells money, models and what is wrong', async t => {
    await world.respond({ model: 'sim/echo', input: 'x' })
    for (let at = 0; at < 6; at++) await world.respond({ model: 'test/down', input: 'x' })
    const summary = async (key?: string) =>
      (await (await admin('/console/data/summary', {}, key)).json()) as {
        requests: number
        failed: number
        problems: { text: string; view: string }[]
        models: { model: string | null; failed: number }[]
        latest: { model: string | null }[]
      }
    let told = await summary()
    for (let tries = 0; told.requests < 7 && tries < 200; tries++) told = await summary()
    t.match(told, { requests: 7, failed: 6 })
    t.ok((told.models.find(({ model }) => model === 'test/down')?.failed ?? 0) >= 5)
    t.equal(
      told.models.reduce((sum, { failed }) => sum + failed, 0),
      6,
    )
    t.ok(
      told.problems.some(
        ({ text, view }) => /6 of the last 7 requests failed/.test(text) && view === 'requests',
      ),
    )
    t.equal(told.latest.length, 7)
    t.match(await summary(other.managementKey), { requests: 0, models: [], latest: [] })
  })
})
