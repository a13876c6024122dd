/**
 * Removes files that no process loads from a node_modules folder: the builds of the HTTP library for other systems and
 * other versions of Node, and the C headers of the package `node`. Runs after each `npm ci` of a clone, and in the
 * Dockerfile, on whatever version of Node is there, so it is plain JavaScript. `node scripts/trim-modules.js [FOLDER]`.
 */
import { existsSync, readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

/** The version of modules of Node 22, the newest for which the library has builds. */
const MODULES = 127
const OWN = `uws_${process.platform}_${process.arch}_${MODULES}.node`

const modules = process.argv[2] ?? fileURLToPath(new URL('../node_modules', import.meta.url))

const namesIn = folder => (existsSync(folder) ? readdirSync(folder) : [])
const remove = (...path) => rmSync(join(...path), { recursive: true, force: true })

const builds = join(modules, 'uWebSockets.js/dist/bin')
for (const name of namesIn(builds)) if (/^uws_.*\.node$/.test(name) && name !== OWN) remove(builds, name)
const runtimes = join(modules, 'node/node_modules')
for (const name of namesIn(runtimes)) if (name.startsWith('node-')) remove(runtimes, name, 'include')
