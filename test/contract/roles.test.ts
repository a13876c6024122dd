/** Roles of management keys: every operation as every role, over HTTP, as its row and the docs say. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import type { Operation } from '../../src/api/operation.ts'
import { hashKey } from '../../src/callers/api-key.ts'
import { KEY_ROLES } from '../../src/callers/key-roles.ts'
import type { KeyRole } from '../../src/protocol/management/keys.ts'
import { allOperations } from '../support/operations.ts'
import { startManagedGateway } from '../support/world.ts'

const { gateway, call, addKey } = await startManagedGateway(t)
const rows = await allOperations(t)
const keys: Record<KeyRole, string> = {
  viewer: (await addKey('management', { role: 'viewer' })).key,
  operator: (await addKey('management', { role: 'operator' })).key,
  admin: (await addKey('management', { role: 'admin' })).key,
}

const isEnough = (role: KeyRole, least: KeyRole) => KEY_ROLES.indexOf(role) >= KEY_ROLES.indexOf(least)

/** A request that changes nothing: of records that are not there, with a body that no operation takes. */
async function ask({ method, path, bases, accept }: Operation, key: string) {
  const place = path
    .replace('{hash}', 'f'.repeat(64))
    .replace('{ref}', 'nothing')
    .replace(/\{\w+\}/g, 'nobody')
  const reply = await fetch(`${gateway.url.replace(/\/v1$/, bases?.[0] ?? '/v1')}${place}`, {
    method,
    headers: {
      authorization: `Bearer ${key}`,
      ...(accept === 'none' ? {} : { 'content-type': 'application/json' }),
    },
    ...(accept === 'none' ? {} : { body: '[]' }),
  })
  return { status: reply.status, text: await reply.text() }
}

t.test('every operation takes every role as its row says', async t => {
  let tried = 0
  for (const row of rows) {
    for (const role of KEY_ROLES) {
      const { status, text } = await ask(row, keys[role])
      const name = `${row.method} ${row.path} as ${role}`
      tried++
      if (row.key === 'inference') t.equal(status, 403, name)
      else if (row.key !== 'management' || isEnough(role, row.role)) t.not(status, 403, name)
      else {
        t.equal(status, 403, name)
        const { error } = JSON.parse(text) as { error: { message: string; metadata: object } }
        const enough = KEY_ROLES.slice(KEY_ROLES.indexOf(row.role)).join(' or ')
        t.ok(error.message.includes(`the role ${enough}, but this key has the role ${role}`), error.message)
        t.match(error.metadata, { error_type: 'permission_denied', required_role: row.role })
      }
    }
  }
  t.equal(tried, rows.length * KEY_ROLES.length)
  const managed = rows.filter(row => row.key === 'management')
  t.comment(`${rows.length} operations, ${managed.length} of them of management, ${tried} requests`)
  for (const row of managed) t.equal(row.role === 'viewer', row.method === 'GET', `${row.path}: viewers read`)
})

t.test('a key without a role is an admin, and an API key has none', async t => {
  t.match((await call('GET', '/key')).data, { role: 'admin' })
  t.match((await call('GET', '/key', undefined, gateway.apiKey)).data, { role: null })
  t.match((await call('GET', '/key', undefined, keys.viewer)).data, { role: 'viewer' })
})

t.test('no key makes, changes or takes over one of a higher role', async t => {
  const admin = await addKey('management')
  const operator = await addKey('management', { role: 'operator' })
  const viewer = await addKey('management', { role: 'viewer' })
  const rotation = { overlap_seconds: 0 }
  for (const role of KEY_ROLES) {
    t.match(await call('POST', '/keys', { name: 'x', role }, operator.key), {
      status: 403,
      message: /the role admin, but this key has the role operator/,
    })
  }
  for (const { record } of [admin, viewer]) {
    const path = `/keys/${record.hash}`
    for (const [method, where, body] of [
      ['PATCH', path, { name: 'x' }],
      ['PATCH', path, { role: 'viewer' }],
      ['DELETE', path, undefined],
      ['POST', `${path}/rotate`, rotation],
    ] as const) {
      t.equal((await call(method, where, body, operator.key)).status, 403, `${method} ${where}`)
    }
  }
  const own = `/keys/${operator.record.hash}`
  t.match(await call('PATCH', own, { role: 'admin' }, operator.key), { status: 400, message: /^role: / })
  t.match(await call('PATCH', `/keys/${hashKey(gateway.managementKey)}`, { role: 'viewer' }), {
    status: 400,
    message: /^role: /,
  })
  t.equal((await call('PATCH', own, { name: 'mine' }, operator.key)).status, 200)
  const rotated = await call('POST', `${own}/rotate`, rotation, operator.key)
  t.equal(rotated.status, 200, 'a key may rotate itself')
  const fresh = String(rotated.document['key'])
  t.match((await call('GET', '/key', undefined, fresh)).data, { role: 'operator' })
  const ofApiKey = await call('POST', '/keys', { name: 'an API key' }, fresh)
  t.equal(ofApiKey.status, 201)
  const place = `/keys/${ofApiKey.data['hash']}`
  t.equal((await call('POST', `${place}/rotate`, rotation, fresh)).status, 200)
  t.match(await call('PATCH', place, { role: 'viewer' }, fresh), { status: 403 })
  t.match(await call('PATCH', place, { role: 'viewer' }), { status: 400, message: /^role: / })
  t.equal((await call('DELETE', place, undefined, fresh)).status, 200)
})

t.test('an admin makes management keys of every role, and changes their roles', async t => {
  for (const role of KEY_ROLES) {
    const { status, document, data } = await call('POST', '/keys', { name: role, role })
    t.equal(status, 201)
    t.match(data, { role, is_management_key: true })
    const key = String(document['key'])
    t.match(key, /^sk-gw-mgmt-/)
    t.match((await call('GET', '/key', undefined, key)).data, { role })
    const path = `/keys/${data['hash']}`
    t.match((await call('PATCH', path, { role: 'operator' })).data, { role: 'operator' })
    t.equal((await call('POST', '/credits', { amount: 1 }, key)).status, 403, 'at once')
    t.match((await call('PATCH', path, { role: 'admin' })).data, { role: 'admin' })
    t.equal((await call('POST', '/credits', { amount: 1 }, key)).status, 201)
  }
  for (const [field, value] of Object.entries({
    limit: 1,
    workspace_id: 'ws_default',
    trace_trusted: true,
  })) {
    t.match(await call('POST', '/keys', { name: 'x', role: 'viewer', [field]: value }), {
      status: 400,
      message: new RegExp(`^${field}: `),
    })
  }
})

t.test('the table of the docs is that of the rows', t => {
  const text = readFileSync(join(import.meta.dirname, '../../docs/management.md'), 'utf8')
  const table = text.slice(
    text.indexOf('| lowest role |'),
    text.indexOf('\n\n', text.indexOf('| lowest role |')),
  )
  for (const role of ['operator', 'admin'] as const) {
    const line = table.split('\n').find(each => each.startsWith(`| \`${role}\` |`)) ?? ''
    const expected = rows.flatMap(row =>
      row.key === 'management' && row.role === role ? [`${row.method} ${row.path}`] : [],
    )
    const told = [...line.matchAll(/`([A-Z]+ \/[^`]*)`/g)].map(([, operation = '']) => operation)
    t.same(told.toSorted(), expected.toSorted(), role)
  }
  t.end()
})
