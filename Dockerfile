# Build: check the HTTP library, compile once, then keep production packages only. Run: no compiler, no development
# packages, no root. For builds that can be repeated, name the base image by its digest, and raise it on purpose:
# FROM node:22-bookworm-slim@sha256:…
FROM node:22-bookworm-slim AS build
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
RUN npm ci
COPY tsconfig.json tsconfig.build.json ./
COPY scripts ./scripts
COPY bin ./bin
COPY src ./src
RUN npm run verify && npm run build && npm prune --omit=dev

FROM node:22-bookworm-slim
# The admin port stays on the loopback of the container, where the health check is: it asks for no key.
ENV NODE_ENV=production \
    GATEWAY_HOST=0.0.0.0
WORKDIR /app
# Owned by root: the user that runs the gateway can write to /app/data alone.
COPY package.json LICENSE NOTICE ./
COPY --from=build /app/node_modules ./node_modules
COPY --from=build /app/bin ./bin
COPY --from=build /app/dist ./dist
RUN ln -s /app/bin/sluice.js /usr/local/bin/sluice && mkdir data && chown node:node data
USER node
VOLUME /app/data
EXPOSE 8080 9090
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s \
  CMD ["node", "-e", "fetch('http://127.0.0.1:' + (process.env.GATEWAY_ADMIN_PORT || 9090) + '/healthz').then(r => process.exit(r.ok ? 0 : 1), () => process.exit(1))"]
CMD ["sluice", "start"]
