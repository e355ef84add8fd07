#!/bin/bash
# Starts one of: an executor of Spark on Kubernetes, a master or worker of standalone Spark, the health check of a
# node, or any `kopi` command.
set -euo pipefail

executor() {
  local options=() name
  cd /tmp  # the working folder of the image is the home of a node
  for name in $(compgen -e SPARK_JAVA_OPT_ | sort --version-sort); do
    options+=("${!name}")
  done
  exec "$JAVA_HOME/bin/java" "${options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
    -cp "${SPARK_CONF_DIR:-$SPARK_HOME/conf}:$SPARK_HOME/jars/*" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
    --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
    --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
}

alive() {  # in Kubernetes the pod, its host name and its node have the same name
  kopi node status "$1" --config /etc/kopitiam/kopitiam.toml --json | grep --quiet '"state": "alive"'
}

case "${1:-}" in
  executor) executor ;;
  alive) alive "${2:-$HOSTNAME}" ;;
  spark-master) shift && exec spark-class org.apache.spark.deploy.master.Master "$@" ;;
  spark-worker) shift && exec spark-class org.apache.spark.deploy.worker.Worker "$@" ;;
  *) exec kopi "$@" ;;
esac
