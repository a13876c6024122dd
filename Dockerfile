# Build: compile, check the HTTP library, then keep production packages and the embedded shell only. Run: no compiler,
# no development packages, no root. For builds that can be repeated, name the base image by its digest, and raise it on
# purpose: FROM node:22-bookworm-slim@sha256:…
FROM node:22-bookworm-slim AS build
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
COPY scripts ./scripts
# Ends with scripts/trim-modules.js, which leaves one binary of the HTTP library.
RUN npm ci
COPY tsconfig.json tsconfig.build.json ./
COPY bin ./bin
COPY src ./src
# What the guide is built of.
COPY README.md CHANGELOG.md CONTRIBUTING.md ./
COPY docs ./docs
COPY bench ./bench
COPY examples ./examples
COPY grafana ./grafana
RUN npm run verify && npm run build && scripts/production-modules

FROM node:22-bookworm-slim
ARG VERSION=0.1.0
ARG REVISION=
LABEL org.opencontainers.image.title="Sluice" \
      org.opencontainers.image.description="A streaming gateway to AI model providers: one Responses-format endpoint in front of many." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.base.name="docker.io/library/node:22-bookworm-slim"
# The admin port stays on the loopback of the container, where the health check is: it asks for no key.
ENV NODE_ENV=production \
    GATEWAY_HOST=0.0.0.0
WORKDIR /app
# Owned by root: the user that runs the gateway can write to /app/data alone.
COPY package.json LICENSE NOTICE ./
COPY --from=build /app/node_modules ./node_modules
COPY --from=build /app/bin ./bin
COPY --from=build /app/dist ./dist
COPY scripts/healthcheck /usr/local/bin/sluice-health
RUN ln -s /app/bin/sluice.js /usr/local/bin/sluice && mkdir data && chown 1000:1000 data
# By number, so that Kubernetes can tell that it is not root.
USER 1000:1000
VOLUME /app/data
EXPOSE 8080 9090
HEALTHCHECK --interval=30s --timeout=3s --start-period=10s CMD ["sluice-health"]
CMD ["sluice", "start"]
