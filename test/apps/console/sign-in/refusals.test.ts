/** Sign-ins that must not succeed: each leaves no session and no key, and says what is wrong without a token. */
import t, { type Test } from 'tap'
import type { TokenFaults } from '../../../support/oidc-provider.ts'
import {
  type Reply,
  type SignInWorld,
  startSignInWorld,
  type TestBrowser,
} from '../../../support/sign-in-world.ts'

const nowSeconds = (): number => Math.floor(Date.now() / 1000)

async function isRefused(
  t: Test,
  world: SignInWorld,
  browser: TestBrowser,
  reply: Reply,
  status: number,
  name: string,
): Promise<void> {
  t.equal(reply.status, status, name)
  t.match(reply.text, /<h1>You are not signed in<\/h1>/, name)
  t.match(reply.headers.get('content-security-policy'), "default-src 'none'")
  t.equal(reply.headers.get('location'), null)
  t.same(await world.sessionKeys(), [], `${name}: no key`)
  t.notOk(
    [...browser.cookies.keys()].some(each => each.includes('session')),
    `${name}: no session`,
  )
  t.equal((await browser.call('GET', 'process')).status, 401)
  const said = JSON.stringify([reply.text, world.lines])
  for (const secret of world.provider.secrets) t.notOk(said.includes(secret), `${name}: no token`)
}

t.test('tokens that are not for this gateway, this sign-in and this time', async t => {
  const world = await startSignInWorld(t)
  const cases: readonly (readonly [name: string, faults: () => TokenFaults])[] = [
    ['another issuer', () => ({ claims: { iss: 'https://evil.example' } })],
    ['no issuer', () => ({ claims: { iss: undefined as unknown as string } })],
    ['another audience', () => ({ claims: { aud: 'another' } })],
    ['no audience', () => ({ claims: { aud: [] } })],
    ['several audiences without azp', () => ({ claims: { aud: ['gateway', 'another'] } })],
    [
      'several audiences with another azp',
      () => ({ claims: { aud: ['gateway', 'another'], azp: 'another' } }),
    ],
    ['one audience with another azp', () => ({ claims: { azp: 'another' } })],
    ['another nonce', () => ({ claims: { nonce: 'another' } })],
    ['no nonce', () => ({ claims: { nonce: undefined } })],
    ['expired', () => ({ claims: { iat: nowSeconds() - 900, exp: nowSeconds() - 600 } })],
    ['not valid yet', () => ({ claims: { nbf: nowSeconds() + 600 } })],
    ['without an end', () => ({ claims: { exp: undefined as unknown as number } })],
    ['without a subject', () => ({ claims: { sub: undefined as unknown as string } })],
    ['an empty subject', () => ({ claims: { sub: '' } })],
    ['a subject with a line end', () => ({ claims: { sub: 'ann\r\nset-cookie: a=b' } })],
    ['a subject with a space', () => ({ claims: { sub: 'ann https://other.example bob' } })],
    ['a subject that is no ASCII', () => ({ claims: { sub: 'аnn-1' } })],
    ['a subject that is too long', () => ({ claims: { sub: 'a'.repeat(256) } })],
    ['a subject that is a number', () => ({ claims: { sub: 7 as unknown as string } })],
    ['unsigned', () => ({ sign: 'none' })],
    ['signed with the secret', () => ({ sign: 'HS256' })],
    ['signed by an algorithm that the provider does not name', () => ({ sign: 'RS256' })],
    ['signed with another key', () => ({ sign: 'foreign key' })],
    ['no ID token', () => ({ noToken: true })],
  ]
  for (const [name, faults] of cases) {
    world.provider.faults = faults()
    const browser = world.browser()
    await isRefused(t, world, browser, await browser.signIn(), 403, name)
  }
  world.provider.faults = {}
  t.equal((await world.browser().signIn()).status, 303, 'without a fault it succeeds')
})

t.test('callbacks that this browser did not ask for, or used before', async t => {
  const world = await startSignInWorld(t)
  const victim = world.browser()
  const others = await world.browser().visitProvider()
  await isRefused(t, world, victim, await victim.comeBack(others), 400, 'begun by another browser')
  const begun = await victim.visitProvider()
  await isRefused(t, world, world.browser(), await world.browser().comeBack(begun), 400, 'without its cookie')
  const planted = world.browser()
  for (const name of victim.cookies.keys()) planted.cookies.set(name, 'planted')
  await isRefused(t, world, planted, await planted.comeBack(begun), 400, 'with another cookie')
  const changed = new URL(begun)
  changed.searchParams.set('state', 'x'.repeat(43))
  await isRefused(t, world, victim, await victim.comeBack(changed), 400, 'another state')
  changed.searchParams.set('state', 'a\r\nSet-Cookie: evil=1; Path=/')
  await isRefused(t, world, victim, await victim.comeBack(changed), 400, 'a state with line ends')
  const stateless = new URL(begun)
  stateless.searchParams.delete('state')
  await isRefused(t, world, victim, await victim.comeBack(stateless), 400, 'no state')
  await isRefused(t, world, victim, await victim.ask('/console/callback'), 400, 'nothing at all')

  const mixed = await victim.visitProvider()
  const code = new URL(mixed)
  code.searchParams.set('code', others.searchParams.get('code') ?? '')
  await isRefused(t, world, victim, await victim.comeBack(code), 400, 'the code of another sign-in')

  world.clock.advance(600_000)
  await isRefused(t, world, victim, await victim.comeBack(begun), 400, 'too late')

  const used = await victim.visitProvider()
  const cookies = new Map(victim.cookies)
  t.equal((await victim.comeBack(used)).status, 303)
  const [key] = await world.sessionKeys()
  const again = world.browser()
  for (const [name, value] of cookies) again.cookies.set(name, value)
  t.equal((await again.comeBack(used)).status, 400, 'again')
  t.same(
    (await world.sessionKeys()).map(each => each.hash),
    [key?.hash],
  )
})

t.test('what the provider refuses is told by its code alone', async t => {
  const world = await startSignInWorld(t)
  const refuse = async (error: string) => {
    const browser = world.browser()
    const back = await browser.visitProvider()
    back.searchParams.delete('code')
    back.searchParams.set('error', error)
    back.searchParams.set('error_description', '<script>alert(1)</script> call +1 555 0100')
    return { browser, reply: await browser.comeBack(back) }
  }
  const denied = await refuse('access_denied')
  t.match(denied.reply.text, 'The sign-in provider refused the sign-in (access_denied).')
  await isRefused(t, world, denied.browser, denied.reply, 403, 'denied')
  t.notMatch(denied.reply.text, /script|555/)
  const markup = await refuse('<script>alert(1)</script>')
  await isRefused(t, world, markup.browser, markup.reply, 403, 'markup')
  t.notMatch(markup.reply.text, /script/)
})

t.test('neither Host nor the query leads a browser elsewhere', async t => {
  const world = await startSignInWorld(t)
  const browser = world.browser()
  const begun = await browser.call(
    'POST',
    'sign-in?redirect_uri=https://evil.example&return=//evil.example',
    undefined,
    {
      'x-forwarded-host': 'evil.example',
      'x-forwarded-proto': 'https',
      forwarded: 'host=evil.example',
    },
  )
  const url = new URL(String(begun.document['url']))
  t.equal(url.origin, world.provider.issuer)
  t.equal(url.searchParams.get('redirect_uri'), `${world.origin}/console/callback`)
  const back = await browser.visitProvider()
  for (const name of ['next', 'return', 'redirect_uri', 'location'])
    back.searchParams.set(name, '//evil.example')
  const reply = await browser.comeBack(back)
  t.equal(reply.status, 303)
  t.equal(reply.headers.get('location'), '/console')
  const other = await world.browser().call('POST', 'sign-in', undefined, { origin: 'http://127.0.0.1:1' })
  t.equal(other.status, 403)
})

t.test('a provider that is another one, or does not answer as one', async t => {
  const world = await startSignInWorld(t)
  const { issuer } = world.provider
  const beginning = async (metadata: Readonly<Record<string, unknown>>) => {
    world.provider.metadata = metadata
    return await world.browser().call('POST', 'sign-in')
  }
  t.match(await beginning({ issuer: 'https://evil.example' }), {
    status: 502,
    text: /issuer does not match console\.oidc\.issuer/,
  })
  t.match(world.lines, [{ why: 'issuer' }])
  for (const metadata of [
    { issuer: undefined },
    { authorization_endpoint: undefined },
    { authorization_endpoint: 'javascript:alert(1)' },
    { id_token_signing_alg_values_supported: ['none', 'HS256'] },
  ])
    t.equal((await beginning(metadata)).status, 502, JSON.stringify(metadata))
  world.provider.metadata = {}
  world.oidc.issuer = `${issuer}/another`
  t.equal((await beginning({})).status, 502)

  const gone = await startSignInWorld(t)
  const browser = gone.browser()
  const back = await browser.visitProvider()
  await gone.provider.close()
  await isRefused(t, gone, browser, await browser.comeBack(back), 502, 'gone before the code was exchanged')

  const keyless = await startSignInWorld(t)
  keyless.provider.metadata = { jwks_uri: `${keyless.provider.issuer}/nowhere` }
  const other = keyless.browser()
  await isRefused(t, keyless, other, await other.signIn(), 502, 'its keys are nowhere')

  const stranger = await startSignInWorld(t, { clientSecret: 'wrong' })
  const last = stranger.browser()
  const reply = await last.signIn()
  t.match(reply.text, /does not accept this gateway \(invalid_client\)/)
  await isRefused(t, stranger, last, reply, 502, 'a wrong secret')
})

t.test('a provider whose answers have no end, or lead elsewhere', async t => {
  const world = await startSignInWorld(t)
  const { provider } = world
  for (const path of ['/token', '/jwks']) {
    const browser = world.browser()
    const back = await browser.visitProvider()
    provider.endless = path
    await isRefused(t, world, browser, await browser.comeBack(back), 502, path)
    provider.endless = null
  }
  provider.endless = '/.well-known/openid-configuration'
  t.equal((await world.browser().call('POST', 'sign-in')).status, 502)
  t.ok(provider.endlessBytes < 3 * 16 * 1024 * 1024, `${provider.endlessBytes} bytes were read of three`)
  provider.isFine = true
  provider.endlessBytes = 0
  t.equal((await world.browser().call('POST', 'sign-in')).status, 502, 'chunks of one byte')
  t.ok(provider.endlessBytes < 16 * 1024 * 1024, `${provider.endlessBytes} bytes were read of chunks`)
  provider.endless = null
  provider.redirect = `${provider.issuer}/elsewhere`
  t.equal((await world.browser().call('POST', 'sign-in')).status, 502)
  t.notOk(provider.asked.includes('/elsewhere'))
})

t.test('a provider that takes the secret in the body gets it there', async t => {
  const world = await startSignInWorld(t)
  world.provider.metadata = { token_endpoint_auth_methods_supported: ['client_secret_post'] }
  t.equal((await world.browser().signIn()).status, 303)
})

t.test('attempts are bounded: the oldest one goes', async t => {
  const world = await startSignInWorld(t)
  const [first, second] = [world.browser(), world.browser()]
  const [one, two] = [await first.visitProvider(), await second.visitProvider()]
  for (let at = 0; at < 127; at++) await world.browser().call('POST', 'sign-in')
  t.equal((await first.comeBack(one)).status, 400)
  t.equal((await second.comeBack(two)).status, 303)
})

t.test('huge claims are no trouble', async t => {
  const world = await startSignInWorld(t)
  world.provider.claims = {
    sub: 'a'.repeat(255),
    roles: [...Array.from({ length: 20_000 }, (_, at) => `group-${at}`), 'gateway-viewers'],
    picture: 'x'.repeat(1_000_000),
  }
  const browser = world.browser()
  t.equal((await browser.signIn()).status, 303)
  t.match(await browser.session(), { role: 'viewer' })
  t.equal((await browser.call('GET', 'api/keys')).status, 200)
})
