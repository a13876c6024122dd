/** Sign-in in a real browser, at the product as it is started: cookies, policies and redirects. */
import t from 'tap'
import { openBrowser, WITHOUT_BROWSER } from '../../../support/browser.ts'
import { startSignInConsole } from '../../../support/sign-in-world.ts'
import { eventually } from '../../../support/stream-probe.ts'

t.test('a person signs in, changes something, and signs out', { skip: WITHOUT_BROWSER }, async t => {
  const { provider, origin, world } = await startSignInConsole(t)
  const browser = await openBrowser(t)
  const visit = await browser.visit({ origin })
  const { page, context } = visit
  const signIn = async () => {
    await page.goto(`${origin}/console`)
    await page.getByRole('button', { name: 'Sign in' }).click()
  }

  provider.claims = { sub: 'bob-1', roles: ['nobody'] }
  await signIn()
  await page.getByText('your account has no role here').waitFor()
  await page.getByRole('link', { name: 'Back to the console' }).click()
  await page.getByLabel('Management key').waitFor()

  provider.claims = { sub: 'ann-1', roles: ['gateway-admins'] }
  await signIn()
  await page.getByText('live', { exact: true }).waitFor()
  t.equal(page.url(), `${origin}/console`)
  t.match(await context.cookies(), [
    { name: 'sluice-session', path: '/console', httpOnly: true, sameSite: 'Strict' },
  ])
  await page.reload()
  await page.getByText('live', { exact: true }).waitFor()

  // As the page asks; its own forms have tests of their own.
  const made = await page.evaluate(async () => {
    const reply = await fetch('/console/data/api/keys', {
      method: 'POST',
      headers: { 'x-sluice-console': '1', 'content-type': 'application/json' },
      body: JSON.stringify({ name: 'Made by Ann' }),
    })
    return reply.status
  })
  t.equal(made, 201)
  const audit = await world.manage('GET', '/audit')
  t.match(audit.list[0], { action: 'key.create', actor_label: `${provider.issuer} ann-1` })

  await page.getByRole('button', { name: 'Sign out' }).click()
  await page.getByRole('button', { name: 'Sign in' }).waitFor()
  t.same(await context.cookies(), [])

  await signIn()
  await page.getByText('live', { exact: true }).waitFor()
  const { list } = await world.manage('GET', '/keys')
  const session = list.find(({ name }) => name === 'console: ann-1')
  t.equal((await world.manage('DELETE', `/keys/${session?.['hash']}`)).status, 200)
  await page.getByText('Your session has expired. Sign in again.').waitFor()

  const own = (await visit.faults()).filter(fault => !/status of 40[13]|localhost/.test(fault))
  t.same(own, [])
  const log = () => world.gateway.stdout()
  t.ok(await eventually(() => log().includes('"subject":"ann-1"'), 60_000))
  t.match(log(), /"why":"no role"/)
  for (const secret of provider.secrets) t.notOk(log().includes(secret))
})
