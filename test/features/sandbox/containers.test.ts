import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import { SandboxClient, SandboxServer } from '../../../src/features/sandbox/channel.ts'
import { RunQueue } from '../../../src/features/sandbox/run-queue.ts'
import { sandboxOf } from '../../../src/features/sandbox/sandbox.ts'
import { TestClock } from '../../support/test-clock.ts'
import { linkedEnds } from '../../support/thread-link.ts'
import { OTHER, OWNER, python, SIGNAL, sandboxWorld, shell, TERMS, withoutEngine } from './sandbox.ts'

const BYTES = Buffer.from('x'.repeat(1_000_000))

t.test('a container that nobody uses ends after its time', async t => {
  const clock = new TestClock()
  const world = sandboxWorld({}, clock)
  t.teardown(() => world.close())
  const { containers } = world
  const { id } = await containers.open(OWNER, null, { ...TERMS, sleepAfterSeconds: 100 })
  clock.advance(99_000)
  await containers.write(OWNER, id, 'a', BYTES)
  clock.advance(99_000)
  t.equal((await containers.open(OWNER, id, { ...TERMS, sleepAfterSeconds: 1 })).isNew, false)
  clock.advance(1_000)
  await t.rejects(containers.list(OWNER, id), { code: 'not_found' })
  t.equal(containers.count, 0)
  t.equal((await containers.open(OWNER, 'named', TERMS)).isNew, true)
  clock.advance(2_592_000_000)
  t.equal(containers.count, 0, 'it was removed although nobody asked')
  t.equal((await containers.open(OWNER, 'named', TERMS)).isNew, true)
})

t.test('ids of the gateway cannot be guessed or chosen', async t => {
  const world = sandboxWorld()
  t.teardown(() => world.close())
  const ids = new Set<string>()
  for (let made = 0; made < 20; made++) ids.add((await world.containers.open(OWNER, null, TERMS)).id)
  t.equal(ids.size, 20)
  for (const id of ids) t.match(id, /^cntr_[0-9A-Za-z]{32}$/)
  for (const id of ['cntr_mine', 'a b', '../x', 'x'.repeat(41), 'ü', '']) {
    await t.rejects(world.containers.open(OWNER, id, TERMS), { code: 'not_found' }, id)
  }
})

t.test('a workspace with too many containers loses its own, never those of others', async t => {
  const world = sandboxWorld({ containersPerWorkspace: 3, containers: 5, storeMb: 16, fileMb: 8 })
  t.teardown(() => world.close())
  const { containers } = world
  const others = [await containers.open(OTHER, null, TERMS), await containers.open(OTHER, null, TERMS)]
  const own = []
  for (let made = 0; made < 10; made++) own.push(await containers.open(OWNER, null, TERMS))
  t.equal(containers.count, 5)
  for (const { id } of others) t.same(await containers.list(OTHER, id), [])
  for (const [at, { id }] of own.entries()) {
    const listed = containers.list(OWNER, id)
    if (at < 7) await t.rejects(listed, { code: 'not_found' })
    else t.same(await listed, [])
  }
  await containers.open({ ...OTHER, workspaceId: 'third' }, null, TERMS)
  t.equal(containers.count, 5, 'the workspace that has most gave one up')
  for (const { id } of others) t.same(await containers.list(OTHER, id), [])
})

t.test('files have bounds, for each container and for all', async t => {
  const world = sandboxWorld({ fileMb: 4, storeMb: 16 })
  t.teardown(() => world.close())
  const { containers } = world
  const { id } = await containers.open(OWNER, 'a', TERMS)
  for (let made = 0; made < 4; made++) await containers.write(OWNER, id, `deep/${made}`, BYTES)
  await t.rejects(containers.write(OWNER, id, 'more', BYTES), { code: 'payload_too_large' })
  await containers.write(OWNER, id, 'deep/0', BYTES)
  t.equal((await containers.list(OWNER, id)).length, 4)
  await t.rejects(containers.write(OWNER, id, 'deep', BYTES), { code: 'payload_too_large' })
  await t.rejects(containers.write(OWNER, id, '../x', BYTES), { code: 'invalid_request' })
  for (const name of ['b', 'c', 'd', 'e']) {
    await containers.open(OWNER, name, TERMS)
    for (let made = 0; made < 4; made++) await containers.write(OWNER, name, `${made}`, BYTES)
  }
  await containers.open(OWNER, 'f', TERMS)
  await t.rejects(containers.list(OWNER, 'a'), { code: 'not_found' }, 'the oldest made room')
})

t.test('memory beyond the limit ends the run, and files are as they were', async t => {
  const world = sandboxWorld({ memoryMb: 256, timeoutMs: 20_000 })
  t.teardown(() => world.close())
  const { id } = await world.containers.open(OWNER, null, TERMS)
  await world.containers.write(OWNER, id, 'kept', Buffer.from('kept'))
  const codes = [
    python(
      'open("new", "w").write("x"); a = [bytearray(10**7) for _ in range(40)]; import time; time.sleep(9)',
    ),
  ]
  const run = { codes, timeoutMs: null, maxOutputLength: null }
  const { outputs, notice } = await world.containers.run(OWNER, id, run, SIGNAL)
  t.match(notice, /256 MB of memory\. The files are as they were/)
  t.match(outputs, [{ exitCode: null, timedOut: false }])
  t.same(
    (await world.containers.list(OWNER, id)).map(({ path }) => path),
    ['kept'],
  )
})

t.test('a network policy cannot change while the container exists', async t => {
  const world = sandboxWorld()
  t.teardown(() => world.close())
  const allowlist = { ...TERMS, allowedDomains: ['example.com'] } as const
  await t.rejects(world.containers.open(OWNER, 'a', allowlist), { code: 'invalid_request' })
  await world.containers.open(OWNER, 'a', TERMS)
  await t.rejects(world.containers.open(OWNER, 'a', allowlist), { code: 'conflict' })
})

t.test('runs wait for their turn, workspaces take turns, and too many are refused', async t => {
  const queue = new RunQueue({ running: 1, runningPerWorkspace: 1, waitingPerWorkspace: 2, maxWaiting: 3 })
  const order: string[] = []
  const gates: (() => void)[] = []
  const work = (name: string) => async (): Promise<string> => {
    order.push(name)
    await new Promise<void>(resolve => gates.push(resolve))
    return name
  }
  const leaving = new AbortController()
  const first = queue.run('a', SIGNAL, work('a1'))
  const second = queue.run('a', SIGNAL, work('a2'))
  const left = queue.run('a', leaving.signal, work('a3'))
  t.equal(queue.run('a', SIGNAL, work('a4')), null, 'a workspace cannot fill the queue')
  const other = queue.run('b', SIGNAL, work('b1'))
  t.equal(queue.run('c', SIGNAL, work('c1')), null, 'the queue is full')
  leaving.abort(new Error('left'))
  await t.rejects(
    Promise.resolve(left).then(() => undefined),
    { message: 'left' },
  )
  for (const running of [first, second, other]) {
    gates.shift()?.()
    await running
    await new Promise(resolve => setImmediate(resolve))
  }
  t.same(order, ['a1', 'a2', 'b1'])
})

t.test('another thread uses containers by messages', async t => {
  const world = sandboxWorld()
  t.teardown(() => world.close())
  const log = { fault: (_component: string, _message: string, thrown: unknown) => t.fail(String(thrown)) }
  const server = new SandboxServer(world.containers, log)
  const { caller } = linkedEnds({ api: { sandbox: server }, isSlow: true })
  const client = new SandboxClient(caller.service('sandbox'))
  const sandbox = sandboxOf(client)
  await sandbox.check(TERMS)
  const container = await sandbox.open(OWNER, null, TERMS)
  await container.write('in.txt', Buffer.from('abc'))
  const run = { codes: [shell('rev in.txt > out.txt')], timeoutMs: null, maxOutputLength: null }
  t.match(await container.run(run, SIGNAL), { outputs: [{ exitCode: 0 }], notice: null })
  t.equal(
    Buffer.from((await container.read('out.txt')) ?? [])
      .toString()
      .trim(),
    'cba',
  )
  t.equal(await container.read('none'), null)
  t.same((await container.list()).map(({ path }) => path).toSorted(), ['in.txt', 'out.txt'])
  await t.rejects(
    sandbox.open(OTHER, container.id, TERMS),
    new GatewayError('not_found', 'There is no container with this id; it may have been deleted'),
  )
  const leaving = new AbortController()
  const sleeping = container.run({ ...run, codes: [shell('sleep 100')] }, leaving.signal)
  leaving.abort(new Error('left'))
  await t.rejects(sleeping, { message: 'left' })
  t.match(await container.run(run, SIGNAL), { notice: null }, 'the container is free again')
  const lost = container.run({ ...run, codes: [shell('sleep 100')] }, SIGNAL).catch(() => 'never')
  // One turn until it is sent, one until it has arrived.
  for (let turn = 0; turn < 2; turn++) await new Promise(resolve => setImmediate(resolve))
  server.close()
  t.match(
    await world.containers.run(OWNER, container.id, run, SIGNAL),
    { notice: null },
    'runs of a dead thread end',
  )
  void lost
  await world.containers.end(OWNER, container.id)
})

const without = await withoutEngine('bubblewrap')
t.test('folders of processes that were killed are removed', { skip: without }, async t => {
  const world = sandboxWorld({ engine: 'bubblewrap' })
  t.teardown(() => world.close())
  const parent = process.getuid?.() === 0 ? tmpdir() : world.folder
  const dead = join(parent, 'sluice-sandbox-2147483646-1-left')
  const living = join(parent, `sluice-sandbox-${process.ppid}-1-living`)
  for (const folder of [dead, living]) mkdirSync(folder, { recursive: true })
  t.teardown(() => rmSync(living, { recursive: true }))
  writeFileSync(join(dead, 'x'), 'x')
  await world.containers.open(OWNER, null, TERMS)
  t.notOk(existsSync(dead))
  t.ok(existsSync(living))
})
