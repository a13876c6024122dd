/** Sign-in to the console: the way in, what a session may do and for how long, and who asks for what. */
import { createHash } from 'node:crypto'
import t from 'tap'
import { startSignInWorld } from '../../../support/sign-in-world.ts'

const HOUR = 3_600_000

t.test('who signs in changes things under their own name, with the role of their claim', async t => {
  const world = await startSignInWorld(t)
  const browser = world.browser()
  t.same((await browser.call('GET', 'session')).document, { sign_in: true, signed_in: null })
  const back = await browser.signIn()
  t.match(back, { status: 303, text: '' })
  t.equal(back.headers.get('location'), '/console')
  const [asked] = world.provider.authorizations
  const authorization = new URLSearchParams(asked)
  t.equal(authorization.get('redirect_uri'), `${world.origin}/console/callback`)
  t.equal(authorization.get('scope'), 'openid')
  t.match(authorization.get('state'), /^[\w-]{43}$/)
  const signedIn = await browser.session()
  t.match(signedIn, { name: 'console: ann-1', role: 'admin' })

  const made = await browser.call('POST', 'api/keys', { name: 'Made by Ann' })
  t.equal(made.status, 201, 'a key without an end, although the session has one')
  const actor = `${world.provider.issuer} ann-1`
  const { items } = await world.store.audit.page('org_default', { offset: 0, limit: 10 })
  t.match(items, [
    { action: 'key.create', actor, object: { name: 'Made by Ann' } },
    { action: 'key.create', actor, object: { name: 'console: ann-1' }, address: '127.0.0.1' },
  ])
  t.equal(items.length, 2)
  t.match(await browser.call('GET', 'process'), { status: 200 })
  t.match(world.lines, [{ msg: 'signed in', issuer: world.provider.issuer, subject: 'ann-1', role: 'admin' }])
})

t.test('cookies are for this page alone, and nobody is told the key', async t => {
  const world = await startSignInWorld(t)
  const browser = world.browser()
  await browser.signIn()
  const [attempt, ended, session] = browser.set
  t.match(
    attempt,
    /^sluice-sign-in-[0-9a-f]{16}=[\w-]{43}; Path=\/console; HttpOnly; SameSite=Lax; Max-Age=600$/,
  )
  t.match(ended, /^sluice-sign-in-[0-9a-f]{16}=; Path=\/console; HttpOnly; SameSite=Lax; Max-Age=0$/)
  t.match(session, /^sluice-session=[\w-]{43}; Path=\/console; HttpOnly; SameSite=Strict$/)
  const [record] = await world.sessionKeys()
  const said = JSON.stringify([world.lines, world.gateway.lines, browser.set, record])
  for (const secret of world.provider.secrets) t.notOk(said.includes(secret))
  t.notMatch(said, /sk-gw-mgmt-[0-9a-f]{64}/)
  const cookie = browser.cookies.get('sluice-session') ?? ''
  t.notOk(JSON.stringify(record).includes(createHash('sha256').update(cookie).digest('hex')))
})

t.test('behind TLS cookies have the prefix that keeps other names of the domain out', async t => {
  const world = await startSignInWorld(t, { origin: 'https://sluice.example' })
  const browser = world.browser()
  t.equal((await browser.signIn()).status, 303)
  t.equal(
    new URLSearchParams(world.provider.authorizations[0]).get('redirect_uri'),
    'https://sluice.example/console/callback',
  )
  for (const line of browser.set)
    t.match(line, /^__Host-sluice-[\w-]+=[\w-]*; Path=\/; Secure; HttpOnly; SameSite=/)
  t.match(await browser.session(), { role: 'admin' })
  // Such a cookie can come from another name of the domain.
  const planted = world.browser()
  planted.cookies.set('sluice-session', browser.cookies.get('__Host-sluice-session') ?? '')
  t.equal((await planted.call('GET', 'process')).status, 401)
})

t.test('roles are those of the claim: a text, a list, within an object, the highest of several', async t => {
  const cases = [
    ['roles', { roles: 'gateway-viewers' }, 'viewer'],
    ['roles', { roles: ['other', 'gateway-viewers', 'gateway-operators'] }, 'operator'],
    ['realm_access.roles', { realm_access: { roles: ['gateway-operators'] } }, 'operator'],
    ['https://example.com/roles', { 'https://example.com/roles': ['gateway-admins'] }, 'admin'],
    ['email', { email: 'gateway-viewers', email_verified: true }, 'viewer'],
  ] as const
  const world = await startSignInWorld(t)
  for (const [at, [roleClaim, claims, role]] of cases.entries()) {
    world.oidc.roleClaim = roleClaim
    world.provider.claims = { sub: 'ann-1', ...claims }
    const browser = world.browser()
    t.equal((await browser.signIn()).status, 303, roleClaim)
    t.match(await browser.session(), { role })
    t.equal(
      (await browser.call('POST', 'api/workspaces', { name: 'W', slug: `w-${at}` })).status,
      role === 'viewer' ? 403 : 201,
    )
    t.equal((await browser.call('POST', 'api/credits', { amount: 1 })).status === 403, role !== 'admin')
  }
})

t.test('an account without a role is told so, and gets nothing', async t => {
  const cases = [
    ['roles', {}],
    ['roles', { roles: [] }],
    ['roles', { roles: ['gateway-admin', 'GATEWAY-ADMINS', 7, null, { admin: true }] }],
    ['roles', { roles: 'toString' }],
    ['roles', { roles: { 'gateway-admins': true } }],
    ['roles', { roles: [['gateway-admins']] }],
    ['roles.0', { roles: 'gateway-admins' }],
    ['constructor.name', { roles: ['gateway-admins'] }],
    ['email', { email: 'gateway-admins' }],
    ['email', { email: 'gateway-admins', email_verified: false }],
    ['email', { email: 'gateway-admins', email_verified: 'true' }],
  ] as const
  const world = await startSignInWorld(t)
  world.oidc.roles = { 'gateway-admins': 'admin', Object: 'admin' }
  for (const [roleClaim, claims] of cases) {
    world.oidc.roleClaim = roleClaim
    world.provider.claims = { sub: 'bob-1', ...claims }
    const browser = world.browser()
    const refused = await browser.signIn()
    t.match(refused, { status: 403, text: /your account has no role here\. Ask the gateway's operator/ })
    t.equal(browser.cookies.size, 0)
    t.same(await world.sessionKeys(), [])
    t.match(world.lines.at(-1), { msg: 'sign-in refused', why: 'no role' })
  }
})

t.test('keys of the provider change at any time', async t => {
  const { provider, browser } = await startSignInWorld(t)
  const person = browser()
  const back = await person.visitProvider()
  await provider.rotate('two')
  t.equal((await person.comeBack(back)).status, 303, 'between the two steps of a sign-in')
  await provider.rotate(undefined)
  t.equal((await browser().signIn()).status, 303, 'to one without a name')
  await provider.rotate('three')
  const old = { kty: 'EC', crv: 'P-256', x: 'x'.repeat(43), y: 'y'.repeat(43), use: 'sig' }
  provider.otherKeys = [
    ...Array.from({ length: 5_000 }, (_, at) => ({ ...old, kid: `old-${at}` })),
    { kty: 'oct', k: 'eA', kid: 'three' },
    { kty: 'odd', kid: 'three' },
  ]
  t.equal((await browser().signIn()).status, 303, 'beside thousands of others')
})

t.test('a session is over after eight hours', async t => {
  const world = await startSignInWorld(t)
  const browser = world.browser()
  await browser.signIn()
  world.clock.advance(8 * HOUR - 1_000)
  t.equal((await browser.call('GET', 'process')).status, 200)
  t.equal((await browser.call('GET', 'api/keys')).status, 200)
  world.clock.advance(1_000)
  t.equal((await browser.call('GET', 'process')).status, 401)
  t.equal((await browser.call('GET', 'api/keys')).status, 401)
  t.equal(await browser.session(), null)
  t.equal((await world.sessionKeys()).length, 1, 'its record is there until somebody signs in')
  world.clock.advance(1_000)
  const next = world.browser()
  world.provider.claims = { sub: 'ann-2', roles: 'gateway-viewers' }
  await next.signIn()
  t.match(await world.sessionKeys(), [{ name: 'console: ann-2' }])
})

t.test('a session ends with its key: disabled or deleted by another admin', async t => {
  const world = await startSignInWorld(t)
  const revoke = async (method: string, body?: object) => {
    const browser = world.browser()
    await browser.signIn()
    const [key] = await world.sessionKeys()
    const reply = await fetch(`${world.gateway.url}/keys/${key?.hash}`, {
      method,
      headers: { authorization: `Bearer ${world.gateway.managementKey}`, 'content-type': 'application/json' },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    })
    t.equal(reply.status, 200, await reply.text())
    world.announce({ kind: 'key', hash: key?.hash ?? '' })
    t.equal((await browser.call('GET', 'process')).status, 401)
    t.equal((await browser.call('POST', 'api/keys', { name: 'x' })).status, 401)
    t.equal(await browser.session(), null)
    await world.store.keys.remove('org_default', key?.hash ?? '')
  }
  await revoke('PATCH', { disabled: true })
  await revoke('DELETE')
})

t.test('nobody gets a secret of a session, more time for it, or another role', async t => {
  const world = await startSignInWorld(t)
  const [ann, bob] = [world.browser(), world.browser()]
  await ann.signIn()
  const [hash = ''] = (await world.sessionKeys()).map(each => each.hash)
  world.provider.claims = { sub: 'bob-1', roles: ['gateway-admins'] }
  await bob.signIn()
  for (const browser of [ann, bob]) {
    for (const [method, path, body] of [
      ['POST', `api/keys/${hash}/rotate`, { overlap_seconds: 0 }],
      ['PATCH', `api/keys/${hash}`, { name: 'console: somebody' }],
      ['PATCH', `api/keys/${hash}`, { expires_at: '2090-01-01T00:00:00Z' }],
      ['PATCH', `api/keys/${hash}`, { role: 'viewer', disabled: true }],
    ] as const)
      t.match(await browser.call(method, path, body), { status: 400 }, `${method} ${JSON.stringify(body)}`)
  }
  t.equal((await bob.call('PATCH', `api/keys/${hash}`, { disabled: true })).status, 200)
})

t.test('signing out ends the session and its key', async t => {
  const world = await startSignInWorld(t)
  const [browser, other] = [world.browser(), world.browser()]
  await browser.signIn()
  await other.signIn()
  const kept = new Map(browser.cookies)
  t.equal((await browser.call('POST', 'sign-out')).status, 200)
  t.equal(browser.cookies.size, 0)
  for (const [name, value] of kept) browser.cookies.set(name, value)
  t.equal((await browser.call('GET', 'process')).status, 401)
  t.equal((await world.sessionKeys()).length, 1)
  t.equal((await other.call('GET', 'process')).status, 200)
  t.equal((await browser.call('POST', 'sign-out')).status, 200, 'again')
  const { items } = await world.store.audit.page('org_default', { offset: 0, limit: 1 })
  t.match(items, [{ action: 'key.delete', actor: `${world.provider.issuer} ann-1` }])
})

t.test('tabs sign in beside each other, and one person has so many sessions', async t => {
  const world = await startSignInWorld(t)
  const browser = world.browser()
  const [one, two] = [await browser.visitProvider(), await browser.visitProvider()]
  t.equal((await browser.comeBack(one)).status, 303)
  t.equal((await browser.comeBack(two)).status, 303)
  const first = world.browser()
  for (let at = 0; at < 7; at++) await (at === 0 ? first : world.browser()).signIn()
  t.equal((await world.sessionKeys()).length, 8)
  t.equal((await first.call('GET', 'process')).status, 200)
  const last = world.browser()
  await last.signIn()
  t.equal((await world.sessionKeys()).length, 8)
  t.equal((await last.call('GET', 'process')).status, 200)
  t.equal((await browser.call('GET', 'process')).status, 401, 'the second oldest is gone')
})

t.test('requests of other sites and pages do not use a session', async t => {
  const world = await startSignInWorld(t)
  const browser = world.browser()
  await browser.signIn()
  const status = async (init: RequestInit, path = 'api/keys') =>
    (await browser.ask(`/console/data/${path}`, init)).status
  const body = { method: 'POST', body: JSON.stringify({ name: 'x' }) }
  const own = { 'x-sluice-console': '1' }
  t.equal(await status({}), 401, 'without the header of the page')
  t.equal(await status({ ...body, headers: { 'content-type': 'text/plain' } }), 401)
  t.equal(await status({ ...body, headers: { ...own, origin: 'https://evil.example' } }), 403)
  t.equal(await status({ ...body, headers: { ...own, origin: 'null' } }), 403)
  t.equal(await status({ ...body, headers: { ...own, 'sec-fetch-site': 'same-site' } }), 403)
  for (const path of ['sign-in', 'sign-out']) {
    t.equal(await status({ method: 'POST', headers: { origin: world.origin } }, path), 403)
    t.equal(await status({ method: 'POST', headers: own }, path), 403)
    t.equal(await status({ headers: { ...own, origin: world.origin } }, path), 405)
  }
  // Set by somebody else beside the own one.
  const cookie = `sluice-session=planted; sluice-session=${browser.cookies.get('sluice-session')}`
  t.equal(await status({ headers: { ...own, cookie } }), 401)
  t.equal((await browser.call('POST', 'api/keys', { name: 'x' })).status, 201)
  t.equal((await browser.call('GET', 'api/keys', undefined, { authorization: 'Bearer x' })).status, 401)
})

t.test('a management key works as before, also while the provider is away', async t => {
  const world = await startSignInWorld(t)
  await world.provider.close()
  const browser = world.browser()
  const refused = await browser.call('POST', 'sign-in')
  t.match(refused, {
    status: 502,
    text: /sign-in provider cannot be reached.*use a management key/,
  })
  t.match(world.lines, [{ msg: 'cannot start a sign-in', why: 'ECONNREFUSED' }])
  const headers = { authorization: `Bearer ${world.gateway.managementKey}` }
  t.equal((await browser.ask('/console/data/api/keys', { headers })).status, 200)
})
