/** Runs `sluice check` on many files in one process, and prints one line per file with its fault. */
import { loadConfig } from '../../src/config/config.ts'
import { buildCatalog } from '../../src/threads/build/catalog.ts'
import { startFailure } from '../../src/threads/start/start-failure.ts'

for (const file of process.argv.slice(2)) {
  try {
    buildCatalog(loadConfig(['--config', file], {}), null)
    process.stdout.write(`${file} is good\n`)
  } catch (error) {
    const failure = startFailure(error)
    if (failure === null) throw error
    process.stdout.write(`${failure.lines.join(' | ')}\n`)
  }
}
