#!/usr/bin/env node
/**
 * Starts the command line if this version of Node can run it; otherwise prints a message. Plain JavaScript with old
 * syntax only, because every version of Node has to parse it.
 */
import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const NEEDED = { major: 22, minor: 19 }
const FLAGS = [
  '--disable-warning=ExperimentalWarning',
  // The inspector lets every local user run code here, with all keys.
  '--disable-sigusr1',
]

// The allocator of the C library keeps freed memory for each thread; two areas for all of them hold less.
const ENVIRONMENT = { MALLOC_ARENA_MAX: '2', ...process.env }

const [major, minor] = process.versions.node.split('.').map(Number)
if (major < NEEDED.major || (major === NEEDED.major && minor < NEEDED.minor)) {
  process.stderr.write(
    `sluice: needs Node ${NEEDED.major}.${NEEDED.minor} or newer; this is Node ${process.versions.node}. ` +
      'In a clone, npm start and npx sluice take the right one from node_modules. ' +
      'Elsewhere, npm install node@22 in the folder of the package gives it to npx sluice.\n',
  )
  process.exit(2)
}

// A clone runs its sources, a package what was compiled of them.
const source = fileURLToPath(new URL('../src/cli.ts', import.meta.url))
const entry = existsSync(source) ? source : fileURLToPath(new URL('../dist/cli.js', import.meta.url))
const words = [process.execPath, ...FLAGS, ...process.execArgv, entry, ...process.argv.slice(2)]

if (process.execve === undefined) {
  import(entry)
} else {
  // The same process goes on, so that signals reach the gateway. This call itself is experimental, and would warn.
  process.removeAllListeners('warning')
  process.execve(process.execPath, words, ENVIRONMENT)
}
