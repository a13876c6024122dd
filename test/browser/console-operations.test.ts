/** Trials of provider keys, and the end of a batch, by clicks alone; the API has what the page did. */
import { createServer } from 'node:http'
import t from 'tap'
import { pixelsTooWide, WITHOUT_BROWSER } from '../support/browser.ts'
import { listening } from '../support/listening.ts'
import { openConsole } from './console-page.ts'

const GOOD = 'good-key-of-the-gateway-4711'
const OWN = 'own-key-of-the-workspace-0815'

/** A provider that takes one key, lists its models, and never answers a completion. */
async function startProvider(t: { teardown(end: () => void): void }): Promise<string> {
  const server = createServer((request, response) => {
    const { authorization } = request.headers
    request.resume()
    if (request.method === 'POST') return
    const isGood = authorization === `Bearer ${GOOD}`
    const body = isGood
      ? { object: 'list', data: [{ id: 'small' }] }
      : { error: { message: `Incorrect API key provided: ${authorization}` } }
    response.writeHead(isGood ? 200 : 401, { 'content-type': 'application/json' }).end(JSON.stringify(body))
  })
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  return (await listening(server)).url
}

t.test('operations on providers and batches', { skip: WITHOUT_BROWSER }, async t => {
  const url = await startProvider(t)
  const silent = { slug: 'silent', format: 'openai-chat', baseUrl: `${url}/v1`, apiKey: GOOD }
  const { world, open } = await openConsole(t, {
    providers: [silent],
    models: [
      { id: 'test/silent', endpoints: [{ provider: 'silent', upstreamModel: 'small' }] },
      { id: 'silent/*', endpoints: [{ provider: 'silent' }] },
    ],
  })
  const { manage } = world
  const credential = await manage('POST', '/byok', { provider: 'silent', key: OWN, name: 'Ours' })
  t.equal(credential.status, 201, credential.text)
  const visit = await open('models')
  const { page } = visit
  const dialog = page.getByRole('dialog')
  const verdict = dialog.getByRole('status').last()
  const close = async () => {
    await dialog.getByRole('button', { name: 'Close' }).click()
    await page.locator('dialog.form').waitFor({ state: 'detached' })
  }

  await t.test("the gateway's key is tried from a model, by keyboard", async t => {
    const models = page.getByRole('table', { name: 'Models and their endpoints' })
    await models.getByRole('button', { name: 'Try key of silent for test/silent' }).focus()
    await page.keyboard.press('Enter')
    await dialog.getByRole('button', { name: 'Try it' }).focus()
    await page.keyboard.press('Enter')
    await verdict.getByText('works', { exact: true }).waitFor()
    await verdict.getByText('silent accepted the key: it listed its models').waitFor()
    t.equal(await pixelsTooWide(page), 0)
    t.notMatch(await page.content(), GOOD)
  })

  await t.test('an own credential is tried too, and its refusal told with the way out', async t => {
    const { list } = await manage('GET', '/workspaces')
    await dialog.getByLabel('Key of').selectOption(String(list[0]?.['id']))
    t.equal(await dialog.getByText('works', { exact: true }).count(), 0, 'of the other key nothing is said')
    await dialog.getByLabel('Credential').selectOption({ label: 'Ours' })
    await dialog.getByRole('button', { name: 'Try it' }).click()
    await verdict.getByText('does not work', { exact: true }).waitFor()
    await verdict.getByText("silent refused the workspace's own key Ours").waitFor()
    await verdict.getByText('Put a valid key into the credential').waitFor()
    t.equal(await verdict.locator('code').textContent(), 'key')
    t.notMatch(await page.content(), OWN)
    await close()
  })

  await t.test('a wildcard, and a provider for which a workspace has no credential', async t => {
    await page.getByRole('button', { name: 'Try key of silent for silent/*' }).click()
    t.equal(await dialog.getByLabel('Call').count(), 0, 'it names no model')
    await close()
    await page.getByRole('button', { name: 'Try key of sim for sim/echo' }).first().click()
    const { list } = await manage('GET', '/workspaces')
    await dialog.getByLabel('Key of').selectOption(String(list[0]?.['id']))
    await dialog.getByText('No BYOK credential for sim there.').waitFor()
    t.equal(await dialog.getByRole('button', { name: 'Try it' }).isDisabled(), true)
    await dialog.getByLabel('Key of').selectOption('')
    await dialog.getByLabel('Call').selectOption('model')
    await dialog.getByRole('button', { name: 'Try it' }).click()
    await verdict.getByText('sim/echo answered').waitFor()
    await close()
  })

  await t.test('the list of credentials tries them where they are', async t => {
    await page.keyboard.press('4')
    await page.getByRole('button', { name: 'Try credential Ours' }).click()
    await dialog.getByRole('button', { name: 'Try it' }).click()
    await verdict.getByText('does not work', { exact: true }).waitFor()
    await close()
    const { list } = await manage('GET', '/audit')
    const actions = list.map(({ action }) => action)
    t.equal(actions.filter(action => action === 'credential.check').length, 2)
    t.equal(actions.filter(action => action === 'provider.check').length, 2)
  })

  await t.test('a batch is stopped after a question', async t => {
    const reply = await fetch(`${world.gateway.url}/v1/batches`, {
      method: 'POST',
      headers: { authorization: `Bearer ${world.gateway.apiKey}`, 'content-type': 'application/json' },
      body: JSON.stringify({
        endpoint: '/v1/responses',
        model: 'test/silent',
        requests: [{ custom_id: 'a', body: { input: 'Hello' } }],
      }),
    })
    t.equal(reply.status, 202)
    const { id } = (await reply.json()) as { id: string }
    await page.keyboard.press('7')
    const row = page.locator('tr', { has: page.getByRole('rowheader', { name: id }) })
    await row.getByRole('button', { name: `Stop ${id}` }).click()
    await dialog.getByText('finished results stay').waitFor()
    await dialog.getByRole('button', { name: 'Cancel' }).click()
    await page.locator('dialog.form').waitFor({ state: 'detached' })
    t.equal((await manage('GET', '/audit')).list.filter(({ action }) => action === 'batch.cancel').length, 0)
    await row.getByRole('button', { name: `Stop ${id}` }).click()
    await dialog.getByRole('button', { name: 'Stop the batch' }).click()
    await row.getByText('cancelled', { exact: true }).waitFor()
    t.equal(await row.getByRole('button').count(), 0, 'what has ended cannot be stopped')
    const [latest] = (await manage('GET', '/audit')).list
    t.match(latest, { action: 'batch.cancel', object: { kind: 'batch', id } })
  })
  t.same(await visit.faults(), [])
})
