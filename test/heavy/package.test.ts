/** The package as its users get it: packed, installed into an empty folder, started by `npx`, asked for a stream. */
import { execFileSync, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import t from 'tap'

/** The test runner hooks itself into children, and so into the compiler; these are to be as their users run them. */
const PLAIN = ['-u', 'NODE_OPTIONS']
const ROOT = join(import.meta.dirname, '../..')

t.test('the packed gateway streams its first token in an empty folder', async t => {
  // Not below this folder, whose packages would be found from there.
  const folder = mkdtempSync(join(tmpdir(), 'sluice-package-'))
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  const cwd = join(folder, 'empty')
  mkdirSync(cwd)
  writeFileSync(join(cwd, 'package.json'), '{"private":true}')
  const env = {
    ...process.env,
    PATH: `${dirname(process.execPath)}:${process.env['PATH']}`,
    GATEWAY_PORT: '0',
    GATEWAY_ADMIN_PORT: '0',
  }
  const npm = (words: readonly string[], where: string) =>
    execFileSync('env', [...PLAIN, 'npm', ...words], {
      cwd: where,
      env,
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'inherit'],
    })
  mkdirSync(join(folder, 'packed'))
  npm(['pack', '--pack-destination', join(folder, 'packed')], ROOT)
  const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string }
  npm(['install', '--no-audit', join(folder, 'packed', `sluice-gateway-${version}.tgz`)], cwd)
  t.notOk(existsSync(join(cwd, 'node_modules/sluice-gateway/src')), 'no sources')
  t.notOk(existsSync(join(cwd, 'node_modules/typescript')), 'no development packages')

  const slip = spawnSync('env', [...PLAIN, 'npx', 'sluice', 'start', '--confg', 'x'], {
    cwd,
    env,
    encoding: 'utf8',
  })
  t.equal(slip.status, 2)
  t.match(slip.stderr, /^sluice: --confg: unknown option of sluice start; did you mean --config\?$/m)
  t.match(spawnSync('env', [...PLAIN, 'npx', 'sluice', '--version'], { cwd, env, encoding: 'utf8' }), {
    status: 0,
    stdout: `${version}\n`,
  })

  const gateway = spawn('env', [...PLAIN, 'npx', 'sluice', 'start'], { cwd, env, detached: true })
  // npx, a shell and the gateway are one group.
  t.teardown(() => {
    if (gateway.pid !== undefined && gateway.exitCode === null) process.kill(-gateway.pid, 'SIGKILL')
  })
  const closed = once(gateway, 'close')
  let stdout = ''
  let stderr = ''
  gateway.stderr.on('data', text => {
    stderr += text
  })
  await Promise.race([
    new Promise<void>(resolve => {
      gateway.stdout.on('data', text => {
        stdout += text
        if (stdout.includes('the first keys were written to a file')) resolve()
      })
    }),
    closed.then(() => Promise.reject(new Error(`it ended: ${stderr}`))),
  ])
  const told = readFileSync(join(cwd, 'data/first-keys'), 'utf8')
  const [, key = ''] = /(sk-gw-v1-[0-9a-f]{64})/.exec(told) ?? []
  const [, url = '', body = ''] = /curl -N (\S+) .* -d '(.*)'/.exec(told) ?? []
  const reply = await fetch(url, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body,
  })
  t.equal(reply.status, 200)
  t.match(await reply.text(), /response\.output_text\.delta[\s\S]*response\.completed/)
  process.kill(-(gateway.pid ?? 0), 'SIGTERM')
  await closed
  t.notMatch(stdout + stderr, /sk-gw-(v1|mgmt)-[0-9a-f]{6}/, 'only masked keys')
  t.match(stdout, '"msg":"stopped"')
  t.notMatch(stderr, 'ExperimentalWarning')
})
