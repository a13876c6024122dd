import { readdirSync, readFileSync } from 'node:fs'
import { createServer, get } from 'node:http'
import t from 'tap'
import type { Code } from '../../../src/features/sandbox/engine.ts'
import { listening } from '../../support/listening.ts'
import { share } from '../../support/share.ts'
import { OWNER, python, SIGNAL, sandboxWorld, shell, TERMS, withoutEngine } from './sandbox.ts'

interface Bomb {
  readonly name: string
  readonly code: Code
}

/** Each would take the machine if nothing held it. */
const BOMBS: readonly Bomb[] = [
  { name: 'a fork bomb', code: shell(':(){ :|:& };:; while :; do :; done') },
  { name: 'a bomb of functions', code: shell('f() { f; f; }; f') },
  { name: 'a memory bomb in Python', code: python('a = []\nwhile True: a.append(bytearray(10**7))') },
  { name: 'a memory bomb in the shell', code: shell('x=aaaaaaaa; while :; do x=$x$x$x$x; done') },
  {
    name: 'a file bomb',
    code: python('i = 0\nwhile True:\n  open(f"f{i}", "wb").write(b"x" * 10**6); i += 1'),
  },
  { name: 'a bomb of names', code: shell('i=0; while :; do i=$((i+1)); echo x > n$i; done') },
  { name: 'a flood of output', code: python('while True: print("x" * 10000)') },
  { name: 'an endless loop in Python', code: python('while True: pass') },
  { name: 'an endless loop in the shell', code: shell('while :; do :; done') },
  { name: 'an endless loop in awk', code: shell("awk 'BEGIN { while (1) { } }'") },
  { name: 'a long sleep', code: shell('sleep 100000') },
  {
    name: 'threads',
    code: python(
      'import threading\nwhile True: threading.Thread(target=lambda: [0 for _ in iter(int, 1)]).start()',
    ),
  },
]

for (const engine of ['embedded', 'bubblewrap'] as const) {
  const skip = await withoutEngine(engine)
  t.test(`bombs end in the engine ${engine}, and neighbours are served meanwhile`, { skip }, async t => {
    const world = sandboxWorld({ engine, timeoutMs: 2_000, memoryMb: 400, fileMb: 4 })
    const server = createServer((_, response) => void response.end('ok'))
    const { port } = await listening(server, t)
    t.teardown(() => world.close())
    let ended = 0
    const bombs = share(BOMBS, 3)
    for (const { name, code } of bombs) {
      let over = false
      const running = world.run([code]).finally(() => {
        over = true
      })
      let served = 0
      while (!over) {
        await new Promise<void>((resolve, reject) => {
          get({ port, host: '127.0.0.1', agent: false }, response =>
            response.resume().once('end', resolve),
          ).once('error', reject)
        })
        served++
      }
      const { outputs, notice } = await running
      const [output] = outputs
      const isEnded = notice !== null || output?.timedOut === true || output?.exitCode !== 0
      t.ok(isEnded, `${name}: ${notice} ${output?.exitCode} ${output?.stderr.slice(0, 80)}`)
      t.ok(
        (output?.stdout.length ?? 0) <= 65_536 && (output?.stderr.length ?? 0) <= 65_536,
        `${name}: bounded output`,
      )
      t.ok(served > 0, `${name}: ${served} requests of a neighbour served`)
      ended++
    }
    const other = sandboxWorld({ engine })
    t.teardown(() => other.close())
    const after = await other.run([shell('echo still here')])
    t.match(after.outputs[0]?.stdout, /still here/)
    t.comment(`${engine}: ${ended}/${bombs.length} bombs ended`)
    t.same(descendants(process.pid), [], 'no process is left')
  })

  t.test(`a caller who leaves ends the run in the engine ${engine}`, { skip }, async t => {
    const world = sandboxWorld({ engine })
    t.teardown(() => world.close())
    const { id } = await world.containers.open(OWNER, null, TERMS)
    const leaving = new AbortController()
    const running = world.containers.run(
      OWNER,
      id,
      { codes: [shell('sleep 100')], timeoutMs: null, maxOutputLength: null },
      leaving.signal,
    )
    setImmediate(() => leaving.abort(new Error('left')))
    await t.rejects(running, { message: 'left' })
    t.same(descendants(process.pid), [])
    const again = await world.containers.run(
      OWNER,
      id,
      { codes: [shell('echo x')], timeoutMs: null, maxOutputLength: null },
      SIGNAL,
    )
    t.equal(again.outputs[0]?.stdout, 'x\n')
  })
}

/** Processes that this one has started and that still run. */
function descendants(pid: number): string[] {
  return readdirSync(`/proc/${pid}/task`).flatMap(task => {
    const children = `/proc/${pid}/task/${task}/children`
    return readText(children)
      .split(' ')
      .filter(child => child !== '' && !/^esbuild/.test(readText(`/proc/${child}/comm`)))
  })
}

function readText(path: string): string {
  try {
    return readFileSync(path, 'latin1')
  } catch {
    return ''
  }
}
