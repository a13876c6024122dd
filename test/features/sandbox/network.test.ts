/** Code in a container with an allow-list reaches servers of its domains, at public addresses, and nothing else. */
import { readdirSync } from 'node:fs'
import { createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import t, { type Test } from 'tap'
import { systemClock } from '../../../src/base/clock.ts'
import type { Code } from '../../../src/features/sandbox/engine.ts'
import { loadConfig } from '../../../src/process/config/config.ts'
import { sandboxTunnels } from '../../../src/process/threads/sandbox-tunnels.ts'

import { isPublicAddress } from '../../../src/providers/upstream/pages/public-addresses.ts'
import type { Address } from '../../../src/providers/upstream/pages/resolve-name.ts'
import { OWNER, python, SIGNAL, sandboxWorld, shell, TERMS, withoutEngine } from './sandbox.ts'

const skip = await withoutEngine('bubblewrap')
/** Stands for a server in the internet: all of 127/8 is this machine. */
const OUTSIDE = '127.0.0.2'
const v4 = (address: string): readonly Address[] => [{ address, family: 4 }]
/** What the resolver says. */
const NAMES: Readonly<Record<string, readonly Address[]>> = {
  'allowed.test': v4(OUTSIDE),
  'deep.allowed.test': v4(OUTSIDE),
  'other.test': v4(OUTSIDE),
  'inside.test': v4('127.0.0.1'),
  'mixed.test': [...v4(OUTSIDE), ...v4('10.0.0.1')],
  'metadata.test': v4('169.254.169.254'),
}
const PAGE = 'HTTP/1.1 200 OK\r\ncontent-length: 9\r\nconnection: close\r\n\r\nthe page\n'

/** A server that says the page to whoever connects, and keeps the others open. */
async function listen(t: Test, host: string) {
  const open = new Set<Socket>()
  const seen = { connections: 0 }
  const server = createServer(socket => {
    seen.connections++
    open.add(socket)
    socket.on('error', () => undefined)
    socket.once('close', () => open.delete(socket))
    socket.on('data', piece => {
      if (piece.toString('latin1').startsWith('GET')) socket.end(PAGE)
    })
  })
  await new Promise<void>(done => server.listen(0, host, done))
  t.teardown(() => {
    for (const socket of open) socket.destroy()
    return new Promise(done => server.close(done))
  })
  return { port: (server.address() as { port: number }).port, seen, open }
}

async function setup(t: Test, allowedDomains: readonly string[] | null) {
  const outside = await listen(t, OUTSIDE)
  const trap = await listen(t, '127.0.0.1')
  const openTunnel = sandboxTunnels(loadConfig([], {}), systemClock, {
    resolve: async name => NAMES[name.replace(/\.$/, '')] ?? [],
    isPublic: address => address === OUTSIDE || isPublicAddress(address),
    ports: new Set(['', '443', String(outside.port), String(trap.port)]),
  })
  const world = sandboxWorld({ engine: 'bubblewrap' }, systemClock, openTunnel)
  t.teardown(() => world.close())
  const { id } = await world.containers.open(OWNER, null, { ...TERMS, allowedDomains })
  const run = async (code: Code) => {
    const request = { codes: [code], timeoutMs: null, maxOutputLength: null }
    const { outputs } = await world.containers.run(OWNER, id, request, SIGNAL)
    return outputs[0] ?? { stdout: '', stderr: 'nothing ran', exitCode: null, timedOut: false }
  }
  const get = (host: string, port = outside.port) =>
    run(shell(`curl --silent --show-error --proxytunnel http://${host}:${port}/ 2>&1`))
  return { outside, trap, run, get, world }
}

t.test('code reaches the domains of its list, and is told why not others', { skip }, async t => {
  const { outside, trap, get, run } = await setup(t, [
    'allowed.test',
    'inside.test',
    'metadata.test',
    'mixed.test',
  ])
  t.equal((await get('allowed.test')).stdout, 'the page\n')
  t.equal((await get('deep.allowed.test')).stdout, 'the page\n', 'a subdomain')
  const before = outside.seen.connections
  for (const host of ['other.test', OUTSIDE, '127.0.0.1', 'allowed.test.other.test', 'xallowed.test'])
    t.match((await get(host)).stdout, /403/, host)
  for (const host of ['inside.test', 'metadata.test', 'mixed.test'])
    t.match((await get(host, trap.port)).stdout, /403/, host)
  const plain = `curl --silent http://allowed.test:${outside.port}/`
  t.match((await run(shell(plain))).stdout, /only HTTPS may leave the sandbox/)
  const asked = (target: string) =>
    run(
      python(`import socket
s = socket.create_connection(('127.0.0.1', 3128))
s.sendall(b'CONNECT ${target} HTTP/1.1\\r\\n\\r\\n')
print(s.recv(9999).decode(), end='')`),
    )
  t.match((await asked(`other.test:${outside.port}`)).stdout, /^HTTP\/1\.1 403 .*allowed_domains/)
  t.match((await asked(`inside.test:${trap.port}`)).stdout, /^HTTP\/1\.1 403 .*not lead to a public address/)
  for (const odd of ['allowed.test', 'allowed.test:', `user@allowed.test:${outside.port}`, 'allowed.test:22'])
    t.match((await asked(odd)).stdout, /^HTTP\/1\.1 (?:403|405) /, odd)
  t.equal(outside.seen.connections, before, 'nobody was connected')
  t.equal(trap.seen.connections, 0)
})

t.test('there is no other way out, and without a list none at all', { skip }, async t => {
  const { outside, trap, run } = await setup(t, ['allowed.test'])
  const direct = (host: string, port: number): Code =>
    shell(`timeout 2 bash -c 'exec 3<>/dev/tcp/${host}/${port}' && echo through`)
  for (const [host, port] of [
    [OUTSIDE, outside.port],
    ['127.0.0.1', trap.port],
  ] as const)
    t.notMatch((await run(direct(host, port))).stdout, /through/, host)
  const closed = await setup(t, null)
  const { stdout } = await closed.run(shell('env; ls /run 2>&1; cat /proc/net/dev'))
  t.notMatch(stdout, /proxy|sluice/i)
  t.notMatch((await closed.run(direct('127.0.0.1', 3128))).stdout, /through/)
  t.equal(outside.seen.connections + trap.seen.connections + closed.outside.seen.connections, 0)
})

t.test('connections end with their run, and nothing is left of its proxy', { skip }, async t => {
  const ours = new RegExp(`^sluice-sandbox-${process.pid}-.*-net-`)
  const folders = (): number => readdirSync(tmpdir()).filter(name => ours.test(name)).length
  const { outside, run } = await setup(t, ['allowed.test'])
  const { stdout } = await run(
    python(`import socket
for n in range(40):
    s = socket.create_connection(('127.0.0.1', 3128))
    s.sendall(b'CONNECT allowed.test:${outside.port} HTTP/1.1\\r\\n\\r\\n')
    globals()['s%d' % n] = s
print(sum(b'200' in globals()['s%d' % n].recv(999) for n in range(40)))`),
  )
  t.ok(Number(stdout) > 0 && Number(stdout) <= 16, `${stdout.trim()} of 40 are open at once`)
  while (outside.open.size > 0) await new Promise(resolve => setImmediate(resolve))
  t.equal(folders(), 0)
  t.equal(
    (await run(shell('curl --silent --proxytunnel http://allowed.test:1/ || echo closed'))).stdout,
    'closed\n',
  )
})

t.test('a list is one of a container, and the setting may forbid it', { skip }, async t => {
  const { world } = await setup(t, null)
  const terms = { ...TERMS, allowedDomains: ['b.test', 'a.test'] }
  await world.containers.open(OWNER, 'named', terms)
  await world.containers.open(OWNER, 'named', { ...TERMS, allowedDomains: ['a.test', 'b.test'] })
  for (const allowedDomains of [null, ['a.test'], ['a.test', 'b.test', 'c.test']])
    await t.rejects(world.containers.open(OWNER, 'named', { ...TERMS, allowedDomains }), { code: 'conflict' })
  const closed = sandboxWorld({ engine: 'bubblewrap', network: 'disabled' })
  t.teardown(() => closed.close())
  await t.rejects(closed.containers.check(terms), { message: /setting tools\.sandbox\.network/ })
})

t.test("two calls that open a name at once do not get each other's network", { skip }, async t => {
  const world = sandboxWorld({ engine: 'bubblewrap' })
  t.teardown(() => world.close())
  const [without, reaching] = await Promise.allSettled([
    world.containers.open(OWNER, 'shared', TERMS),
    world.containers.open(OWNER, 'shared', { ...TERMS, allowedDomains: ['allowed.test'] }),
  ])
  t.equal(without.status, 'fulfilled')
  t.match(reaching, { status: 'rejected', reason: { code: 'conflict' } })
})
