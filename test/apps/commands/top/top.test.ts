/** `sluice top` as a process, against a real gateway; and its screen in narrow and wide terminals. */
import { once } from 'node:events'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { dirname } from 'node:path'
import t from 'tap'
import { screenOf } from '../../../../src/apps/commands/top/screen.ts'
import type { Summary } from '../../../../src/apps/commands/top/summary.ts'
import { startCommand } from '../../../support/command-line.ts'
import { startConsoleWorld } from '../../../support/console-world.ts'
import { freePort } from '../../../support/free-port.ts'
import { until } from '../../../support/patience.ts'

const SUMMARY: Summary = {
  now: '2026-11-27T20:00:00.000Z',
  version: '0.1.0',
  in_flight: 3,
  open_streams: 2,
  problems: [],
  money: { today: 1.234567, month: 31.5, month_at_this_pace: 62.25, credits_left: null },
  window_seconds: 900,
  requests: 1_234,
  failed: 12,
  cost: 0.31,
  first_token_ms: { p50: 320.4, p95: 1_234 },
  models: [
    {
      model: 'acme/a-model-with-a-long-name-that-is-cut',
      requests: 1_200,
      failed: 12,
      cost: 0.3,
      first_token_ms: { p50: 320, p95: 1_234 },
    },
    { model: null, requests: 34, failed: 0, cost: 0, first_token_ms: { p50: null, p95: null } },
  ],
  latest: Array.from({ length: 20 }, (_, at) => ({
    created_at: `2026-11-27T19:59:${String(59 - at)}.000Z`,
    model: at === 0 ? '\u001b[31mevil\u202e' : 'acme/fast-1',
    provider: 'acme',
    status: at === 1 ? 502 : 200,
    outcome: at === 1 ? 'failed' : 'completed',
    error: at === 1 ? 'provider_unavailable' : null,
    first_token_ms: 120,
    duration_ms: 61_000,
    input_tokens: 1_500,
    output_tokens: null,
    cost: null,
  })),
}

t.test('lines fit every width, and colours are for terminals that show them', async t => {
  for (const columns of [20, 40, 60, 80, 120, 200]) {
    const lines = screenOf(SUMMARY, { columns, rows: 24, colors: false })
    for (const line of lines) t.ok(line.length <= columns, `${columns}: ${line}`)
    t.ok(lines.length <= 24)
    // biome-ignore lint/suspicious/noControlCharactersInRegex: it is what must not be there
    t.notMatch(lines.join(''), /[\u0000-\u001f\u202e]/, 'names do not change the terminal')
  }
  const wide = screenOf(SUMMARY, { columns: 120, rows: 40, colors: false }).join('\n')
  t.match(wide, 'no problems')
  t.match(wide, /^15 min: 1\.2k requests/m)
  const short = screenOf({ ...SUMMARY, window_seconds: 12 }, { columns: 120, rows: 40, colors: false })
  t.match(short.join('\n'), /^12 s: 1\.2k requests/m)
  t.match(wide, /1\.2k requests {2}failed 1% {2}first token 320ms, p95 1\.2s/)
  t.match(wide, 'today $1.23  month $31.50  at this pace $62.25')
  t.match(wide, /MODEL +REQUESTS +FAILED +FIRST +P95 +COST/)
  t.match(wide, /acme\/fast-1 +acme +120ms +1m +1\.5k>- +- +provider_unavailable/)
  t.notMatch(screenOf(SUMMARY, { columns: 40, rows: 24, colors: false }).join('\n'), 'PROVIDER')
  const wrong = { ...SUMMARY, problems: [{ text: 'Degraded: the disk is full', is_serious: true }] }
  const [, told = ''] = screenOf(wrong, { columns: 80, rows: 24, colors: true })
  t.equal(told, '\u001b[31m! Degraded: the disk is full\u001b[39m')
})

t.test('sluice top', async t => {
  const world = await startConsoleWorld(t)
  const { adminUrl, url, apiKey } = world.gateway
  const top = (...words: string[]) => startCommand(t, ['top', ...words])
  const key = ['--key', world.managementKey]
  for (let at = 0; at < 3; at++) await world.respond({ model: 'sim/echo', input: 'x' })
  await world.respond({ model: 'test/down', input: 'x' })
  await until('the records of these requests', async () => {
    const { stdout } = await top('--url', adminUrl, ...key, '--json', '--once').ended
    return (JSON.parse(stdout) as Summary).latest.length >= 4
  })

  await t.test('prints once where stdout is no terminal, without colours', async t => {
    const { code, stdout, stderr } = await top('--url', adminUrl, ...key).ended
    t.equal(stderr, '')
    t.equal(code, 0)
    t.match(stdout, /^sluice /)
    t.match(stdout, /sim\/echo/)
    t.notMatch(stdout, '\u001b')
  })

  await t.test('needs no key where the configuration file is, and leaves none', async t => {
    const cwd = dirname(world.gateway.configFile)
    const words = ['top', '--url', adminUrl, '--config', 'gateway.yaml', '--json', '--once']
    const { code, stdout, stderr } = await startCommand(t, words, { cwd }).ended
    t.equal(stderr, '')
    t.equal(code, 0)
    t.ok((JSON.parse(stdout) as Summary).latest.length >= 3)
    const { list } = await world.manage('GET', '/audit')
    t.match(
      list.slice(0, 2).map(({ action, actor_label, object }) => ({ action, actor_label, object })),
      [
        { action: 'key.delete', actor_label: 'command line', object: { name: 'sluice top' } },
        { action: 'key.create', actor_label: 'command line', object: { name: 'sluice top' } },
      ],
    )
  })

  for (const command of [
    ['top', '--once'],
    ['rollouts', 'list'],
    ['providers', 'resume', 'sim'],
  ]) {
    await t.test(`${command.join(' ')} leaves no key if it is interrupted`, async t => {
      const silent = createServer().listen(0, '127.0.0.1')
      t.teardown(() => silent.close())
      await once(silent, 'listening')
      const { port } = silent.address() as AddressInfo
      const words = [...command, '--url', `http://127.0.0.1:${port}`, '--config', 'gateway.yaml']
      const { child, ended } = startCommand(t, words, { cwd: dirname(world.gateway.configFile) })
      const [socket] = (await once(silent, 'connection')) as [Socket]
      t.teardown(() => socket.destroy())
      child.kill('SIGINT')
      t.match(await ended, { code: 130, stderr: '' })
      const { list } = await world.manage('GET', '/audit')
      t.same(
        list.slice(0, 2).map(({ action }) => action),
        ['key.delete', 'key.create'],
      )
    })
  }

  await t.test('prints JSON, once or again and again', async t => {
    const single = await top('--url', `${adminUrl}/`, ...key, '--json', '--once').ended
    t.equal(single.code, 0)
    const summary = JSON.parse(single.stdout) as Summary
    t.ok(summary.latest.length >= 3)
    t.ok(summary.money.month >= 0)
    const more = top('--url', adminUrl, ...key, '--json', '--every', '1')
    await more.wrote(/\n.*\n/)
    more.child.kill('SIGINT')
    const { code, stdout } = await more.ended
    t.equal(code, 0)
    for (const line of stdout.trim().split('\n')) t.match(JSON.parse(line), { version: String })
  })

  await t.test('draws in a terminal, and leaves it as it was', async t => {
    const drawn = startCommand(t, ['top', '--url', adminUrl, ...key, '--every', '1'], {
      columns: 70,
      environment: { TERM: 'xterm-256color' },
    })
    // Drawn twice.
    await drawn.wrote(/(?:sim\/echo[\s\S]*\[2J[\s\S]*){2}/)
    drawn.child.kill('SIGINT')
    const { stdout } = await drawn.ended
    t.match(stdout, '\u001b[?1049h')
  })

  await t.test('says what is wrong with address or key, and shows no key', async t => {
    const wrong = `sk-gw-mgmt-${'0123456789abcdef'.repeat(4)}`
    const nowhere = `http://127.0.0.1:${await freePort()}`
    const cases = [
      [['--url', nowhere, ...key], /no gateway answers at http:\/\/127\.0\.0\.1:\d+ \(ECONNREFUSED\)/, 1],
      [['--url', adminUrl, '--key', wrong], /does not accept the key \(Invalid API key\)/, 1],
      [['--url', adminUrl, '--key', apiKey], /this is an API key, but the console needs a management key/, 1],
      [['--url', url, ...key], /has no console: pass the address of the admin port with --url URL/, 1],
      [['--url', 'ftp://x', ...key], /--url: expects an http:\/\/ or https:\/\/ address/, 2],
      [['--url', adminUrl], /a management key is missing/, 2],
      [['--url', adminUrl, ...key, '--every', '0'], /--every: expects a number of seconds from 1 to 3600/, 2],
    ] as const
    const outcomes = await Promise.all(cases.map(([words]) => top(...words).ended))
    for (const [at, [, told, exit]] of cases.entries()) {
      const { code, stdout = '', stderr = '' } = outcomes[at] ?? {}
      t.match(stderr, told)
      t.equal(code, exit, stderr)
      t.equal(stdout, '')
      t.notMatch(stderr, /[0-9a-f]{64}/)
    }
  })
})

t.test('without the console, sluice top says so', async t => {
  const world = await startConsoleWorld(t, { console: { enabled: false } })
  const { stderr, code } = await startCommand(t, [
    'top',
    '--url',
    world.gateway.adminUrl,
    '--key',
    world.managementKey,
  ]).ended
  t.equal(code, 1)
  t.match(stderr, 'console.enabled must be true there')
})
