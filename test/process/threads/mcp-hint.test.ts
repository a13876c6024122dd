/** The library of MCP is loaded in a quiet moment where a hint says that it will be used. By real files and modules. */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { Worker } from 'node:worker_threads'
import t from 'tap'

const HINT = new URL('../../../src/process/threads/mcp-hint.ts', import.meta.url).href
const LIBRARY = new URL('../../../src/features/tools/mcp/library.ts', import.meta.url).href

/** A thread with modules of its own. Resolves to true if the library is there after the quiet moment. */
function inThread(file: string, { isExpected = false, used = false } = {}): Promise<boolean> {
  const code = `
    const { parentPort, workerData } = require('node:worker_threads')
    const { file, isExpected, used } = workerData
    Promise.all([import(${JSON.stringify(HINT)}), import(${JSON.stringify(LIBRARY)})]).then(async ([hint, library]) => {
      const mine = new library.McpLibrary()
      if (used) await mine.load()
      await hint.followMcpHint(mine, file, isExpected)
      parentPort.postMessage(mine.isLoaded)
    })`
  return new Promise((resolve, reject) => {
    const worker = new Worker(code, { eval: true, workerData: { file, isExpected, used } })
    let isLoaded = false
    worker.once('message', (loaded: boolean) => {
      isLoaded = loaded
    })
    worker.once('error', reject)
    worker.once('exit', () => resolve(isLoaded))
  })
}

t.test('a thread loads the library in the quiet once another one has used it', async t => {
  const file = join(t.testdir(), 'mcp-used')
  t.equal(await inThread(file), false, 'not where nobody used it')
  t.equal(existsSync(file), false)
  t.equal(await inThread(file, { used: true }), true)
  t.equal(existsSync(file), true, 'its use is noted')
  t.equal(await inThread(file), true, 'also after a restart')
})

t.test('a thread loads the library in the quiet where the configuration expects it', async t => {
  const file = join(t.testdir(), 'mcp-used')
  t.equal(await inThread(file, { isExpected: true }), true)
})

t.test('a folder that cannot be written is no failure', async t => {
  t.equal(await inThread(join(t.testdir(), 'none', 'mcp-used'), { used: true }), true)
})
